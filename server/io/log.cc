// The only file of the rooms that includes spdlog: each line goes to spdlog's default logger, which
// the daemon sets up (server/daemon/daemon_log.h). Passing on to it is thread-safe.
#include "server/io/log.h"

#include <spdlog/spdlog.h>

namespace forebay::log {
namespace {

spdlog::level::level_enum LevelOfSpdlog(Level level) {
  // No `default`, so that the compiler reports a level that is added and not mapped here.
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: break;
  }
  return spdlog::level::err;
}

}  // namespace

bool Writes(Level level) { return spdlog::should_log(LevelOfSpdlog(level)); }

void WriteLine(Level level, std::string_view line) {
  // The line is passed as an argument and not as a format string: a path in it may contain braces.
  spdlog::log(LevelOfSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace forebay::log
