#include <array>
#include <charconv>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config.h"
#include "server/daemon/dataset_config.h"
#include "server/tier/capacity.h"

namespace forebay::daemon {
namespace {

Status SetNumber(std::uint64_t& target, const std::string& text, std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > max) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not a whole number between 0 and {}", text, max));
  }
  target = value;
  return {};
}

Status SetChoice(std::string& target, const std::string& text,
                 std::span<const std::string_view> choices) {
  for (const std::string_view choice : choices) {
    if (text == choice) {
      target = text;
      return {};
    }
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' is none of {}", text, fmt::join(choices, ", ")));
}

Status SetBool(bool& target, const std::string& text) {
  if (text != "true" && text != "false") {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not true or false", text));
  }
  target = text == "true";
  return {};
}

// A key whose value is taken as it stands and checked where it is used.
auto Text(std::string Config::*member) {
  return [member](Config& config, const std::string& text) {
    config.*member = text;
    return Status();
  };
}

constexpr std::uint64_t kAnyWhole = limits::kGiB;

// A size whose words are checked here; a share is taken once the whole is known.
auto Capacity(std::string Config::*member) {
  return [member](Config& config, const std::string& text) {
    const Result<std::uint64_t> parsed = tier::ParseCapacity(text, kAnyWhole);
    if (!parsed.has_value()) return Status(parsed.error());
    config.*member = text;
    return Status();
  };
}

auto ByteCount(std::string Config::*member, ByteBounds bounds) {
  return [member, bounds](Config& config, const std::string& text) {
    const Result<std::uint64_t> parsed = ParseByteCount(text, bounds);
    if (!parsed.has_value()) return Status(parsed.error());
    config.*member = text;
    return Status();
  };
}

auto Number(std::uint64_t Config::*member, std::uint64_t max) {
  return [member, max](Config& config, const std::string& text) {
    return SetNumber(config.*member, text, max);
  };
}

constexpr std::array<std::string_view, 3> kBackends = {"auto", "io_uring", "threads"};
constexpr std::array<std::string_view, 2> kLogFormats = {"text", "json"};
constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info",
                                                     "warn",  "error", "off"};

std::vector<ConfigKey> TierKeys() {
  return {
      {"tier.ram.capacity", "25%",
       "Memory for extents: bytes (8GiB) or a share of the cgroup's or machine's memory (25%). A "
       "thirty-second of it is not planned for; with an SSD tier, tar or compression a sixteenth, "
       "and room for two extents (but a quarter at most), which staging works in.",
       Capacity(&Config::ram_capacity)},
      {"tier.ssd.directory", "",
       "Directory on node-local SSD for extents. Empty: no SSD tier.",
       Text(&Config::ssd_directory)},
      {"tier.ssd.capacity", "50%",
       "Room for extents on SSD: bytes or a share of the file system.",
       Capacity(&Config::ssd_capacity)},
      {"tier.ssd.direct", "true",
       "Bypass the page cache (O_DIRECT) where the file system allows it.",
       [](Config& config, const std::string& text) {
         return SetBool(config.ssd_direct, text);
       }},
      {"tier.scrub.enabled", "true",
       "Read what is resident again in the background, and drop what no longer matches its "
       "checksum; the next reader has it brought anew.",
       [](Config& config, const std::string& text) {
         return SetBool(config.scrub_enabled, text);
       }},
      {"tier.scrub.bytes_per_second", "8MiB",
       "How much of both tiers together that reads in a second, on average; at least 64KiB.",
       ByteCount(&Config::scrub_bytes_per_second, kScrubBounds)},
  };
}

std::vector<ConfigKey> DaemonKeys() {
  return {
      {"daemon.socket", "",
       "Unix socket of the data and admin services. Empty: forebayd.sock in a 0700 directory of "
       "this user and job under $XDG_RUNTIME_DIR or the system's temporary directory.",
       Text(&Config::socket)},
      {"daemon.state_dir", "",
       "Directory for saved catalogs, kept between daemons, and for the scratch files of large "
       "ones while they are built. Empty: catalogs are not saved, and are built in memory; one "
       "that has a table of more than 1 GiB then fails.",
       Text(&Config::state_dir)},
      {"daemon.job_id", "",
       "The job this daemon serves; clients of another job are refused. Empty: $FOREBAY_JOB_ID, "
       "then the scheduler's ($SLURM_JOB_ID, $PBS_JOBID, $PJM_JOBID), then 'local'.",
       Text(&Config::job_id)},
      {"daemon.log_level", "info", "trace, debug, info, warn, error or off.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.log_level, text, kLevels);
       }},
      {"daemon.log_format", "text",
       "Of the log, which goes to stderr: text, or json: one object a line, with time (RFC 3339, "
       "UTC), level and message. Control characters of names are escaped in both.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.log_format, text, kLogFormats);
       }},
      {"daemon.workers", "0",
       "Threads that put batches together. 0: half the processors, at least one, two with an SSD "
       "tier.",
       Number(&Config::workers, 256)},
      {"daemon.io_backend", "auto",
       "auto (io_uring where the kernel allows it), io_uring, or threads.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.io_backend, text, kBackends);
       }},
      {"daemon.metrics_listen", "",
       "Address of the Prometheus endpoint, for example 127.0.0.1:9464. Empty: off.",
       Text(&Config::metrics_listen)},
      {"daemon.exit_when_idle_s", "0",
       "Exit once no client has been connected for this many seconds. 0: never.",
       Number(&Config::exit_when_idle_s, 86'400 * 30)},
  };
}

std::vector<ConfigKey> StreamKeys() {
  return {
      {"slots.capacity", "512MiB",
       "Memory in which minibatches are gathered, shared by all streams.",
       ByteCount(&Config::slots_capacity, kSlotsBounds)},
      {"stream.view_pin_capacity", "75%",
       "Extents that the views of one stream may pin: bytes or a share of tier.ram.capacity; "
       "samples of further extents are copied to slots, and counted.",
       Capacity(&Config::view_pin_capacity)},
      {"decode.capacity", "10%",
       "Memory for decoded chunks of packed data sets, kept while some order needs them soon: "
       "bytes or a share of memory.",
       Capacity(&Config::decode_capacity)},
      {"stage.readers", "8", "Threads that read the GFS, one extent at a time each.",
       [](Config& config, const std::string& text) {
         Status set = SetNumber(config.stage_readers, text, 64);
         if (set.has_value() && config.stage_readers == 0) {
           set = Error(ErrorCode::kInvalidArgument, "at least one reader is needed");
         }
         return set;
       }},
      {"stage.requests", "8",
       "GFS reads in flight, over all readers. More where one request is slow to answer; fewer "
       "bring what is demanded first sooner.",
       [](Config& config, const std::string& text) {
         Status set = SetNumber(config.stage_requests, text, limits::kIoDepthMax);
         if (set.has_value() && config.stage_requests == 0) {
           set = Error(ErrorCode::kInvalidArgument, "at least one request is needed");
         }
         return set;
       }},
      {"stage.request", "4MiB", "Size of one GFS read, between 4KiB and 64MiB.",
       ByteCount(&Config::stage_request, kRequestBounds)},
      {"stage.retry_for", "300",
       "Seconds for which a GFS call that fails transiently (EIO, ESTALE, ETIMEDOUT, ...) is made "
       "again; readers wait meanwhile. 0: a failure is final at once.",
       [](Config& config, const std::string& text) {
         return SetNumber(config.stage_retry_for_s, text, kRetrySecondsMax);
       }},
      {"stage.retry_max_interval", "3", "Longest pause between two such tries, in seconds.",
       [](Config& config, const std::string& text) {
         Status set = SetNumber(config.stage_retry_max_interval_s, text, kRetrySecondsMax);
         if (set.has_value() && config.stage_retry_max_interval_s == 0) {
           set = Error(ErrorCode::kInvalidArgument, "a pause of at least one second is needed");
         }
         return set;
       }},
      {"stage.hung_after", "30",
       "Seconds after which a GFS call that is not answered counts as hung: it is named by "
       "'forebay status' and in the log, and other objects are read in its place. More where "
       "files are brought from tape.",
       [](Config& config, const std::string& text) {
         Status set = SetNumber(config.stage_hung_after_s, text, kRetrySecondsMax);
         if (set.has_value() && config.stage_hung_after_s == 0) {
           set = Error(ErrorCode::kInvalidArgument, "every call takes longer than no time");
         }
         return set;
       }},
  };
}

constexpr auto kDatasetKeys = std::to_array<DatasetKey>({
    {"name", "(required)", "How clients and the CLI call it."},
    {"path", "(required)", "Absolute path of its root on the GFS; nothing outside is opened."},
    {"format", "(detected)", "image-folder, tar, idx, npy, raw or pack."},
    {"files", "(found)", "idx, npy, raw: list of \"field=path\"; pack, whose format must be "
                         "set then: list of \"path\", packs or sets; paths beneath the root."},
    {"dtype", "u8", "raw: element type of a record."},
    {"shape", "(required for raw)", "raw: elements of a record, for example [28, 28]."},
    {"header", "0", "raw: bytes before the first record of each file."},
    {"suffixes", "[]", "image-folder: file suffixes that are samples; empty: all."},
    {"extent", "32MiB", "Target size of an extent, at most 64MiB."},
    {"splits", "{}", "Table of split name = file of sample ids, for selection list:NAME."},
    {"stage_at_start", "true", "Begin staging when the daemon starts, not at the first use."},
    {"persist", "false", "Write extents kept in RAM to SSD too, for the next daemon to find."},
    {"compress", "off",
     "idx, npy, raw: compress at staging, so that more fits on the tiers: off, fast, balanced or "
     "dense."},
    {"comment", "", "Ignored."},
});

}  // namespace

std::span<const ConfigKey> ConfigKeys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    for (const auto& room : {DaemonKeys(), TierKeys(), StreamKeys()}) {
      all.insert(all.end(), room.begin(), room.end());
    }
    return all;
  }();
  return keys;
}

std::span<const DatasetKey> DatasetKeys() { return kDatasetKeys; }

std::string ConfigReference() {
  std::string text =
      "# Configuration of forebayd\n\n"
      "Generated by `forebayd --config-reference`; a test keeps it true. Every key can be set in "
      "the\nTOML file given by `--config`, and overridden by `--set KEY=VALUE`.\n\n"
      "| key | default | meaning |\n|---|---|---|\n";
  for (const ConfigKey& key : ConfigKeys()) {
    text += fmt::format("| `{}` | {} | {} |\n", key.name,
                        key.default_text.empty() ? "(empty)" : fmt::format("`{}`",
                                                                           key.default_text),
                        key.help);
  }
  text += "\n## [[dataset]]\n\nOne table per data set.\n\n"
          "| key | default | meaning |\n|---|---|---|\n";
  for (const DatasetKey& key : DatasetKeys()) {
    text += fmt::format("| `{}` | {} | {} |\n", key.name,
                        key.default_text.empty() ? "(empty)" : fmt::format("`{}`",
                                                                           key.default_text),
                        key.help);
  }
  return text;
}

}  // namespace forebay::daemon
