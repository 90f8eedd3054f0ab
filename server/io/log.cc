// The only file of the rooms that includes spdlog. Passing on to its default logger is thread-safe.
#include "server/io/log.h"

#include <spdlog/spdlog.h>

namespace forebay::log {
namespace {

spdlog::level::level_enum LevelOfSpdlog(Level level) {
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
  spdlog::log(LevelOfSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace forebay::log
