// spdlog formats a message; what is added here makes a line safe. Names in messages come from
// clients and the GFS and may hold control characters: those must not change a terminal or begin a
// line that looks like another message.
#include "server/daemon/daemon_log.h"

#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <nlohmann/json.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "proto/contract/printable.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::daemon {
namespace {

using std::chrono::system_clock;

// The names of daemon.log_level; spdlog calls one of them "warning".
std::string_view LevelName(spdlog::level::level_enum level) {
  if (level == spdlog::level::warn) return "warn";
  const auto name = spdlog::level::to_string_view(level);
  return {name.data(), name.size()};
}

// The message of a text line, with control characters escaped.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string text = PrintableLine({message.payload.data(), message.payload.size()});
    line.append(text.data(), text.data() + text.size());
  }
  // spdlog copies a formatter for each sink.
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const std::string text = JsonLogLine(message.time, LevelName(message.level),
                                         {message.payload.data(), message.payload.size()});
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

std::unique_ptr<spdlog::formatter> FormatterOf(const Config& config) {
  if (config.log_format == "json") return std::make_unique<JsonFormatter>();
  auto text = std::make_unique<spdlog::pattern_formatter>();
  // %e is milliseconds, as in the JSON format.
  // '*' stands for the message, instead of spdlog's own flag 'v', which does not escape.
  text->add_flag<PrintableMessage>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %*");
  return text;
}

// A line of gRPC's code may say the same for each connection that a stranger opens, so each says it
// once a minute. Returns nullopt for what is not said, otherwise how often it was not.
std::optional<std::uint64_t> TakeTurn(const char* file, int line) {
  struct Said {
    std::chrono::steady_clock::time_point next;
    std::uint64_t unsaid = 0;
  };
  static Mutex mutex;
  static std::map<std::pair<std::string, int>, Said> said;  // as many as gRPC has such lines
  const auto now = std::chrono::steady_clock::now();
  const MutexLock lock(mutex);
  const auto [entry, is_new] = said.try_emplace({file, line});
  if (!is_new && now < entry->second.next) {
    ++entry->second.unsaid;
    return std::nullopt;
  }
  entry->second.next = now + std::chrono::minutes(1);
  return std::exchange(entry->second.unsaid, 0);
}

// Returns what a user can do about an error that gRPC logs. The text of gRPC itself only names the
// function of OpenSSL that has failed.
const char* RemedyFor(const char* message) {
  if (std::strstr(message, "certificate verify failed") == nullptr) return "";
  return "; if it is a node of this job: peer.secret must be the same on all nodes, and their "
         "clocks must differ by less than a day";
}

// gRPC writes to stderr in a format of its own, which a reader of a JSON log could not parse.
void LogOfGrpc(gpr_log_func_args* said) {
  const auto level = said->severity == GPR_LOG_SEVERITY_ERROR  ? spdlog::level::err
                     : said->severity == GPR_LOG_SEVERITY_INFO ? spdlog::level::info
                                                               : spdlog::level::debug;
  const std::optional<std::uint64_t> unsaid = TakeTurn(said->file, said->line);
  if (!unsaid) return;
  const char* const slash = std::strrchr(said->file, '/');
  spdlog::log(level, "gRPC: {} ({}:{}){}{}", said->message,
              slash != nullptr ? slash + 1 : said->file, said->line, RemedyFor(said->message),
              *unsaid == 0 ? "" : fmt::format("; {} more like this since the last one", *unsaid));
}

}  // namespace

void StartLog(const Config& config) {
  // On stderr, because stdout carries what commands such as `--config-reference` print.
  auto logger = spdlog::stderr_color_mt("forebayd");
  logger->set_formatter(FormatterOf(config));
  spdlog::set_default_logger(std::move(logger));
  // Config allows only names of levels, so from_str cannot fall back.
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  gpr_set_log_function(LogOfGrpc);
}

void SayFatal(const Config& config, std::string_view message) {
  // Not through spdlog: the error may be that the configuration is wrong, before StartLog.
  const std::string line = config.log_format == "json"
                               ? JsonLogLine(system_clock::now(), "critical", message)
                               : fmt::format("forebayd: {}\n", PrintableLine(message));
  fmt::print(stderr, "{}", line);
}

std::string JsonLogLine(system_clock::time_point time, std::string_view level,
                        std::string_view message) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  // floor and not truncation, so that the fraction is never negative.
  const std::time_t whole = seconds.count();
  std::tm utc{};
  // UTC, so that the logs of several nodes can be compared.
  gmtime_r(&whole, &utc);
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(since - seconds).count();
  const nlohmann::ordered_json line = {
      {"time", fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                           utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms)},
      {"level", level},
      {"message", message}};
  constexpr bool kAscii = true;  // also escapes control characters beyond ASCII
  return line.dump(-1, ' ', kAscii, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace forebay::daemon
