// The daemon's log, as its rooms write to it. Where lines go, their form and the lowest level that
// is written are the daemon's choice (server/daemon/daemon_log.h). spdlog writes them, but does not
// appear here: its headers take longer to compile than most sources that log.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace forebay::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Whether lines of this level are written at all.
bool Writes(Level level);
// Writes a line, whatever is in it: the form of the log makes it printable.
void WriteLine(Level level, std::string_view line);

template <typename... Args>
void At(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (Writes(level)) WriteLine(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void Debug(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kDebug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void Info(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void Warn(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kWarn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void Error(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kError, format, std::forward<Args>(args)...);
}

}  // namespace forebay::log
