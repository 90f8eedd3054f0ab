// The daemon's log, as its rooms write to it. The daemon decides where lines go, their form and the
// lowest level that is written (server/daemon/daemon_log.h). spdlog writes the lines, but its
// headers are not included here, because they take longer to compile than most files that log.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace forebay::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Whether lines of this level are written.
bool Writes(Level level);
// Writes a line with any contents: the daemon's log makes control characters printable.
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
