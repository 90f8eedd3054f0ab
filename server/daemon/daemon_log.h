// The format of the daemon's log: lines on stderr, as text for people or as JSON for programs.
// Rooms log through server/io/log.h, which does not know the format.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "server/daemon/config/config.h"

namespace forebay::daemon {

// From now on writes the log, and gRPC's messages too, to stderr, in config.log_format and from
// level config.log_level on. Call once, before threads start.
void StartLog(const Config& config);

// Writes the error for which the daemon ends to stderr, at any log level, as JSON if the log is
// JSON.
void SayFatal(const Config& config, std::string_view message);

// One line of the JSON log, with its newline: {"time":"2024-05-01T12:00:00.123Z","level":"info",
// "message":"..."}, in ASCII. Bytes that are not valid UTF-8 become U+FFFD.
std::string JsonLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view message);

}  // namespace forebay::daemon
