// The daemon's log: lines on stderr, as text for people or as JSON for programs.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "server/daemon/config.h"

namespace forebay::daemon {

// Sends what is logged from here on, and what gRPC has to say, to stderr, in config.log_format and
// from config.log_level on. Call once, before threads start.
void StartLog(const Config& config);

// The daemon ends for this: said whatever the level is, and in JSON where the log is JSON.
void SayFatal(const Config& config, std::string_view message);

// One line of the JSON log, with its end: {"time":"2024-05-01T12:00:00.123Z","level":"info",
// "message":"..."}, in ASCII. Bytes that are no UTF-8 become U+FFFD.
std::string JsonLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view message);

}  // namespace forebay::daemon
