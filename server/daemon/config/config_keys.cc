// The table of all keys. Each entry has its default, its help and a function that parses and sets
// it. ConfigReference prints the table as docs/configuration.md. A new key is added here, and as a
// member of Config.
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "proto/contract/limits.h"
#include "server/catalog/format_driver.h"
#include "server/daemon/config/config.h"
#include "server/daemon/config/dataset_config.h"
#include "server/rendezvous/interface_address.h"
#include "server/rendezvous/rendezvous.h"
#include "server/tier/capacity.h"

namespace forebay::daemon {
namespace {

constexpr std::uint64_t kProbeAnswerMsMin = 100;
// A period of the protocol is a second, and helpers need some of it.
constexpr std::uint64_t kProbeAnswerMsMax = 700;
// After so long the deadline of a request for rows has come (fetch/row_router.cc).
constexpr std::uint64_t kLateMsMax = 30'000;

// Errors of the setters name the value and what is allowed; SetConfigKey adds the name of the key.
Status SetNumber(std::uint64_t& target, const std::string& text, std::uint64_t max,
                 std::uint64_t min = 0) {
  // from_chars takes no sign for an unsigned number, so "-1" is refused and does not become a large
  // one.
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // The whole text must be a number: from_chars alone would take "8 GiB" as 8.
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not a whole number between {} and {}", text, min, max));
  }
  target = value;
  return {};
}

Status SetChoice(std::string& target, const std::string& text,
                 std::span<const std::string_view> choices) {
  // Compared with case, because the words are repeated in messages and documents as they are
  // written here.
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

// A key whose text is stored unchanged; the part of the daemon that uses it checks it.
auto Text(std::string Config::*member) {
  return [member](Config& config, const std::string& text) {
    config.*member = text;
    return Status();
  };
}

// The result that is computed from it is thrown away: the daemon parses the stored text again, once
// it knows the memory or the file system.
constexpr std::uint64_t kAnyWhole = limits::kGiB;  // stands for a size that is not known yet

// A capacity. Its syntax is checked here; a percentage is computed later, when the size that it
// refers to is known.
auto Capacity(std::string Config::*member) {
  return [member](Config& config, const std::string& text) {
    const Result<std::uint64_t> parsed = tier::ParseCapacity(text, kAnyWhole);
    if (!parsed.has_value()) return Status(parsed.error());
    config.*member = text;
    return Status();
  };
}

// A number of bytes within bounds. The text is stored, because it is parsed again where it is used.
auto ByteCount(std::string Config::*member, ByteBounds bounds) {
  return [member, bounds](Config& config, const std::string& text) {
    const Result<std::uint64_t> parsed = ParseByteCount(text, bounds);
    if (!parsed.has_value()) return Status(parsed.error());
    config.*member = text;
    return Status();
  };
}

// A cap on bytes per second; 0: none.
auto ByteCap(std::string Config::*member) {
  return [set = ByteCount(member, kCapBounds)](Config& config, const std::string& text) {
    // With less, a job would seem to stand still. It is rather a number without its unit.
    constexpr std::uint64_t kSmallest = 1'000'000;
    const Result<std::uint64_t> parsed = ParseByteCount(text, kCapBounds);
    if (!parsed.has_value() || *parsed == 0 || *parsed >= kSmallest) return set(config, text);
    return Status(Error(ErrorCode::kInvalidArgument,
                        fmt::format("'{}' is {} bytes per second for the whole job: give a unit, "
                                    "such as 5GB, at least 1MB, or 0 for no cap",
                                    text, *parsed)));
  };
}

// A whole number from `min` to `max`.
auto Number(std::uint64_t Config::*member, std::uint64_t max, std::uint64_t min = 0) {
  return [member, max, min](Config& config, const std::string& text) {
    return SetNumber(config.*member, text, max, min);
  };
}

constexpr std::array<std::string_view, 3> kBackends = {"auto", "io_uring", "threads"};
constexpr std::array<std::string_view, 3> kHugePages = {"auto", "transparent", "off"};
constexpr std::array<std::string_view, 2> kTransports = {"grpc", "mpi"};
constexpr std::array<std::string_view, 2> kLogFormats = {"text", "json"};
constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info",
                                                     "warn",  "error", "off"};

// The help texts are shown by --help and in docs/configuration.md, so each names the unit, the
// bounds and what an empty value means.
std::vector<ConfigKey> TierKeys() {
  return {
      {"tier.ram.capacity", "25%",
       "Memory for extents: bytes (8GiB) or a share of the cgroup's or machine's memory (25%). "
       "One thirty-second of it stays free, because extents do not fill it without gaps. With an "
       "SSD tier, with compression, or with a format without an index (tar, JSON lines), extents "
       "pass through this memory when they are staged; one sixteenth stays free for that, and at "
       "least the size of two extents; in a small tier a quarter, or one extent, but at most half.",
       Capacity(&Config::ram_capacity)},
      {"tier.ssd.directory", "",
       "Directory on node-local SSD for extents. Empty: no SSD tier.",
       Text(&Config::ssd_directory)},
      {"tier.ssd.capacity", "50%",
       "Space for extents on SSD: bytes or a share of the file system.",
       Capacity(&Config::ssd_capacity)},
      // The daemon falls back by itself where O_DIRECT is not supported; this is for where it is
      // slow.
      {"tier.ssd.direct", "true",
       "Bypass the page cache (O_DIRECT) where the file system allows it.",
       [](Config& config, const std::string& text) {
         return SetBool(config.ssd_direct, text);
       }},
      {"tier.scrub.enabled", "true",
       "Read staged extents again in the background and drop those that do not match their "
       "checksum; they are fetched again when they are needed.",
       [](Config& config, const std::string& text) {
         return SetBool(config.scrub_enabled, text);
       }},
      {"tier.scrub.bytes_per_second", "8MiB",
       "Bytes that the scrubber reads per second, on average over both tiers; at least 64KiB.",
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
       "Directory for saved catalogs and checksums of first reads, kept between daemons, and for "
       "the scratch files of large catalogs while they are built. Empty: nothing is saved, "
       "catalogs are built in memory, and one that has a table of more than 1 GiB fails.",
       Text(&Config::state_dir)},
      {"daemon.job_id", "",
       "The job this daemon serves; clients of another job are refused. Empty: $FOREBAY_JOB_ID, "
       "then the scheduler's ($SLURM_JOB_ID, $PBS_JOBID, $PJM_JOBID, Grid Engine's $JOB_ID), then "
       "'local'.",
       Text(&Config::job_id)},
      {"daemon.log_level", "info", "trace, debug, info, warn, error or off.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.log_level, text, kLevels);
       }},
      {"daemon.log_format", "text",
       "Format of the log, which goes to stderr: text, or json (one object per line with time "
       "(RFC 3339, UTC), level and message). Control characters in names are escaped in both.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.log_format, text, kLogFormats);
       }},
      {"daemon.workers", "0",
       "Threads that assemble minibatches. 0: half the processors, at least one, two with an SSD "
       "tier.",
       // Far more than the processors of a node; it catches typing errors.
       Number(&Config::workers, 256)},
      {"daemon.io_backend", "auto",
       "auto (io_uring where the kernel allows it), io_uring, or threads.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.io_backend, text, kBackends);
       }},
      {"daemon.huge_pages", "auto",
       "Pages of 2 MiB for the memory that clients share, extents and minibatches: auto (those "
       "that the site has reserved with vm.nr_hugepages, where they suffice, else as transparent), "
       "transparent (those that the kernel makes of free memory), or off. docs/huge_pages.md says "
       "what a site should set.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.huge_pages, text, kHugePages);
       }},
      {"daemon.metrics_listen", "",
       "Address of the Prometheus endpoint, for example 127.0.0.1:9464. Empty: off.",
       Text(&Config::metrics_listen)},
      {"daemon.exit_when_idle_s", "0",
       "Exit once no client has been connected for this many seconds. 0: never.",
       // Thirty days: longer than a job runs.
       Number(&Config::exit_when_idle_s, 86'400 * 30)},
  };
}

// Values that only the room rendezvous understands are checked by it.
template <typename T>
auto Parsed(std::string Config::*member, Result<T> (*parse)(std::string_view)) {
  return [member, parse](Config& config, const std::string& text) {
    const Result<T> parsed = parse(text);
    if (!parsed.has_value()) return Status(parsed.error());
    config.*member = text;
    return Status();
  };
}

std::vector<ConfigKey> NodeKeys() {
  return {
      {"nodes.rendezvous", "none",
       "How the daemons of a job find each other: none (each daemon serves its node alone), "
       "directory:PATH (a directory that exists and that all nodes share, on the GFS), pmix "
       "(through the launcher: mpirun, srun --mpi=pmix), pmix:events (likewise, and the launcher "
       "says which nodes have failed; for prterun with certain options, docs/launchers.md), "
       "hosts:PATH (a file that lists the nodes, the same on all of them; docs/nodes.md has its "
       "format), or join:HOST:PORT (the job runs already, and this is the address of one of its "
       "nodes: this node takes a free place, of --node-rank if it is given). Except with join, "
       "the rank and the number of nodes come from the launcher, or from --node-rank and "
       "--node-count.",
       Parsed(&Config::nodes_rendezvous, rendezvous::ParseRendezvous)},
      {"nodes.free_places", "0",
       "How many nodes more than it is started with the job has a place for, the same number on "
       "all nodes. A node can join the running job in such a place, or in that of a node which is "
       "lost or has left (nodes.rendezvous = \"join:HOST:PORT\"). Each place has a share of the "
       "data, which other nodes read until a node takes it. Not with caps (stage.job_...), nor "
       "with peer.transport = \"mpi\".",
       Number(&Config::nodes_free_places, limits::kFreePlacesMax)},
      {"nodes.rendezvous_timeout_s", "60",
       "Seconds for which a daemon waits at its start for the daemons of the other nodes. Then it "
       "fails, and names those that are missing (not with pmix, which does not say who they "
       "are). With join, the seconds for which it waits for a free place.",
       // With 0, no other daemon could have come.
       Number(&Config::nodes_rendezvous_timeout_s, kRetrySecondsMax, /*min=*/1)},
      {"nodes.late_ms", "2000",
       "Milliseconds after which a request to another node is late if nothing of its answer has "
       "come, and more if most nodes take more than a quarter of that for an answer. Then the "
       "node's substitutes are asked, and the node is asked for nothing for 2 s, longer each time "
       "if it is late again soon, up to 64 s; so is a node that is asked all that time and sends "
       "less than a fifth of what most nodes send (half, once another node has found it slow), "
       "for 32 s at first. The time in which a node waits for the GFS does not count. A shorter "
       "time keeps readers waiting less for slow nodes, and costs reads from the GFS where nodes "
       "often stand still for so long. 0: a request is late only after 30 s, or when probes find "
       "that the node is lost.",
       Number(&Config::nodes_late_ms, kLateMsMax)},
      {"nodes.probe_answer_ms", "500",
       "Milliseconds in which a node has to answer a probe, between 100 and 700. Each node probes "
       "another one once a second, and asks three others to do so if no answer comes. Raise it "
       "where nodes are so busy that the log often takes one of them for dead that is not.",
       Number(&Config::nodes_probe_answer_ms, kProbeAnswerMsMax, /*min=*/kProbeAnswerMsMin)},
      {"nodes.suspicion_s", "5",
       "Seconds that a node which answered no probe has to refute that before it counts as dead: "
       "then its share is read by others, and requests to it end. In jobs of more than ten nodes "
       "it has log10(nodes) times as long. A shorter time finds lost nodes sooner, and takes more "
       "that only stand still for lost ones, which costs reads from the GFS.",
       Number(&Config::nodes_suspicion_s, kRetrySecondsMax, /*min=*/1)},
      {"nodes.lost_readers_s", "30",
       "Seconds that a node which has finished stays, at the end of a job, after another one was "
       "lost that had not finished, so that the readers of that node can go on here "
       "(peer.remote_clients). They take some 6 s by default once they need their next batch; "
       "raise it where a training step takes longer than a few seconds. Nobody waits in a job "
       "where readers cannot go to other nodes.",
       Number(&Config::nodes_lost_readers_s, kRetrySecondsMax)},
  };
}

std::vector<ConfigKey> PeerKeys() {
  return {
      {"peer.interface", "",
       "Where this daemon listens for other nodes: the name of an interface (ib0), a subnet "
       "(10.1.0.0/16), or an address of this node. Empty: the only interface that is not loopback. "
       "It is used only in a job of several nodes.",
       Text(&Config::peer_interface)},
      {"peer.ports", "",
       "A range of ports for other nodes (7000-7099). The daemon takes the first two that are "
       "free: for calls, and for the bytes of samples (peer.payload_connections). With a single "
       "port (7000), gRPC brings the bytes, too. Empty: any free ports.",
       Parsed(&Config::peer_ports, rendezvous::ParsePortRange)},
      {"peer.secret", "",
       "The secret of the job, by which its nodes encrypt their connections and know each other: "
       "file:PATH, a file of at least 32 bytes on the node that nobody else can read, or none. "
       "Empty: the environment variable FOREBAY_JOB_SECRET, if it is set (docs/security.md).",
       [](Config& config, const std::string& text) -> Status {
         const bool is_file = text.starts_with(kSecretFile) && text.size() > kSecretFile.size();
         if (!is_file && !text.empty() && text != kNoSecret) {
           return Error(ErrorCode::kInvalidArgument, "must be file:PATH, none, or empty");
         }
         config.peer_secret = text;
         return {};
       }},
      {"peer.allow_plaintext", "false",
       "Whether nodes may exchange samples without encryption, and without proof of who they are, "
       "over addresses that are not loopback, where they have no secret. Set it only in a network "
       "that nobody else can send to.",
       [](Config& config, const std::string& text) {
         return SetBool(config.peer_allow_plaintext, text);
       }},
      {"peer.remote_clients", "true",
       "Whether this daemon serves clients of other nodes whose own daemon is gone, at the address "
       "for other nodes, and tells its clients where they find such daemons. It needs a secret "
       "(peer.secret) and peer.transport = \"grpc\". The clients show a certificate of the job, "
       "and get what every node of the job gets, so true opens the daemon to nobody else.",
       [](Config& config, const std::string& text) {
         return SetBool(config.peer_remote_clients, text);
       }},
      {"peer.transport", "grpc",
       "What moves the bytes of samples between nodes: grpc, or mpi (all daemons are started by "
       "one mpirun, and a daemon that is lost ends the job; docs/nodes.md). Requests go over gRPC "
       "in both cases.",
       [](Config& config, const std::string& text) {
         return SetChoice(config.peer_transport, text, kTransports);
       }},
      {"peer.payload_connections", "true",
       "Whether the bytes of samples from other nodes come by encrypted connections of their own, "
       "which cost less CPU time than gRPC's encryption. Each daemon accepts them at one "
       "more port, of peer.ports if that is set. It is used with a secret (peer.secret) and "
       "peer.transport = \"grpc\". Where no such connection can be made, gRPC brings the bytes; "
       "so it does beyond 256 connections of a daemon in each direction, or a sixteenth of the "
       "files that it may open.",
       [](Config& config, const std::string& text) {
         return SetBool(config.peer_payload_connections, text);
       }},
      {"peer.channels", "2048",
       "Other nodes to which this daemon keeps connections over gRPC; beyond, it closes those that "
       "were not used for the longest time and have no call. Fewer if it may not open two files "
       "for each. A connection takes 0.33 MB, with the one that comes from that node. Jobs of more "
       "nodes than that spend processor time on new connections: raise it to the number of nodes "
       "where memory and open files allow.",
       Number(&Config::peer_channels, limits::kNodeCountMax, /*min=*/1)},
      {"peer.module", "",
       "The module for peer.transport = \"mpi\", libforebay_mpi.so, built against the MPI of the "
       "machine. Empty: the one that was installed with the daemon.",
       Text(&Config::peer_module)},
  };
}

std::vector<ConfigKey> StreamKeys() {
  return {
      {"slots.capacity", "512MiB",
       "Shared memory in which minibatches are gathered, for all streams together.",
       ByteCount(&Config::slots_capacity, kSlotsBounds)},
      {"stream.view_pin_capacity", "75%",
       "Extents that the views of all streams together may keep in RAM: bytes or a share of "
       "tier.ram.capacity. Samples of further extents are copied to slots. While batches wait for "
       "room in the tier, all samples are copied. A stream that was promised no slot memory may "
       "exceed the limit if none is left. 'forebay status' counts the copies.",
       Capacity(&Config::view_pin_capacity)},
      {"decode.capacity", "10%",
       "Memory for decoded chunks of packed data sets, which are kept while a stream needs them "
       "soon: bytes or a share of the cgroup's or machine's memory.",
       Capacity(&Config::decode_capacity)},
  };
}

std::vector<ConfigKey> StageKeys() {
  return {
      {"stage.readers", "8", "Threads that read the GFS. Each of them reads one extent at a time.",
       // With 0 readers nothing would ever be staged, and no error would say so.
       Number(&Config::stage_readers, 64, /*min=*/1)},
      {"stage.requests", "8",
       "GFS reads in flight, over all readers. Raise it where the GFS takes long to answer one "
       "request; lower it so that extents that are demanded first arrive sooner.",
       // With 0, the gate would admit no request.
       Number(&Config::stage_requests, limits::kIoDepthMax, /*min=*/1)},
      {"stage.request", "4MiB",
       "Size of one GFS read, between 4KiB and 64MiB. Formats without an index (tar, JSON lines) "
       "are catalogued with smaller reads if tier.ram.capacity has no space for eight of this "
       "size.",
       ByteCount(&Config::stage_request, kRequestBounds)},
      {"stage.job_bytes_per_second", "0",
       "Most bytes that all nodes of the job together read from the GFS in a second, such as 5GB, "
       "at least 1MB; 0: no cap. Each node has an equal share, and nodes lend each other what they "
       "do not need. Must be the same on all nodes.",
       ByteCap(&Config::stage_job_bytes_per_second)},
      {"stage.job_opens_per_second", "0",
       "Most files that all nodes of the job together open on the GFS in a second, with the sizes "
       "of files that are asked for by path and the directories that are listed; 0: no cap. As "
       "stage.job_bytes_per_second otherwise.",
       Number(&Config::stage_job_opens_per_second, kCapOpensMax)},
      {"stage.job_requests", "0",
       "Most GFS reads of samples that all nodes of the job together have in flight; 0: only "
       "stage.requests counts, for each node. Each node has an equal part, at least one request, "
       "and nodes lend each other what they do not need, but no node has more than stage.requests "
       "in flight. Must be the same on all nodes.",
       Number(&Config::stage_job_requests, kCapRequestsMax)},
      {"stage.retry_for", "300",
       "Seconds for which a GFS call that fails with a transient error (EIO, ESTALE, ETIMEDOUT, "
       "...) is repeated; readers wait meanwhile. 0: the first error is final.",
       Number(&Config::stage_retry_for_s, kRetrySecondsMax)},
      {"stage.retry_max_interval", "3",
       "Longest pause between two tries of such a call, in seconds.",
       // Without a pause the retries would flood a GFS that is in trouble.
       Number(&Config::stage_retry_max_interval_s, kRetrySecondsMax, /*min=*/1)},
      {"stage.hung_after", "30",
       "Seconds after which a GFS call without an answer counts as hung: 'forebay status' and "
       "the log name it, and other objects are read meanwhile. Raise it where the GFS brings files "
       "back from tape.",
       // With 0, every call would count as hung.
       Number(&Config::stage_hung_after_s, kRetrySecondsMax, /*min=*/1)},
      {"stage.read_ahead", "true",
       "Whether extents that are on no tier are read from the GFS before batches ask for them: in "
       "the modes block and sequential, those of the next window of each open stream, as far as "
       "they fit beside what is needed sooner.",
       [](Config& config, const std::string& text) {
         return SetBool(config.stage_read_ahead, text);
       }},
  };
}

// Keys of formats come from the formats' drivers, so that a new format needs no change here.
std::vector<DatasetKey> MakeDatasetKeys() {
  // Asked of the drivers at run time, so that the help names the formats of this build.
  std::vector<std::string_view> formats;
  for (const catalog::FormatDriver* driver : catalog::FormatDrivers()) {
    formats.push_back(driver->name);
  }
  std::vector<DatasetKey> keys = {
      {"name", "(required)", "Name of the data set for clients and the CLI."},
      {"path", "(required)",
       "Absolute path of its root folder on the GFS. No file outside of it is opened."},
      {"format", "(detected)", fmt::format("One of {}.", fmt::join(formats, ", "))}};
  // Between `format` and the keys that all data sets have, so that the reference shows first what
  // depends on the format.
  for (const std::string_view name : catalog::FormatKeyNames()) {
    // Several formats may have a key of this name. The default of the first one is shown; the help
    // explains what each format makes of it.
    const catalog::FormatKey* key = catalog::FindFormatKey(name, std::nullopt);
    keys.push_back({name, key->default_text, catalog::FormatKeyHelp(name)});
  }
  const DatasetKey others[] = {
      {"extent", "32MiB", "Target size of an extent, at most 64MiB."},
      {"splits", "{}", "Table of split name = file of sample ids, for selection list:NAME."},
      {"stage_at_start", "true", "Begin staging when the daemon starts, not at the first use."},
      {"persist", "false",
       "Write extents that are kept in RAM to SSD too, so that the next daemon finds them."},
      {"copies", "0",
       "In a job of several nodes: bytes of extents of other nodes that this node keeps a copy of, "
       "as far as its tiers have space when the data set is catalogued. Data sets that are "
       "catalogued later get what is left. Samples of these extents need not be asked for."},
      {"compress", "off",
       "Compress extents at staging, so that more of them fit on the tiers: off, fast, balanced or "
       "dense. Only for samples of a fixed size that are not compressed already."},
      {"comment", "", "Ignored."},
  };
  keys.insert(keys.end(), std::begin(others), std::end(others));
  return keys;
}

}  // namespace

std::span<const ConfigKey> ConfigKeys() {
  // Built at the first call, because entries contain std::function. Thread-safe.
  // Never changed after that, so that readers may keep pointers to entries.
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    // In the order in which the reference prints them.
    for (const auto& room :
         {DaemonKeys(), NodeKeys(), PeerKeys(), TierKeys(), StreamKeys(), StageKeys()}) {
      all.insert(all.end(), room.begin(), room.end());
    }
    return all;
  }();
  return keys;
}

std::span<const DatasetKey> DatasetKeys() {
  static const std::vector<DatasetKey> keys = MakeDatasetKeys();
  return keys;
}

std::string ConfigReference() {
  // The text is one string, because config_test compares it with the file as a whole: a difference
  // in a single character fails.
  std::string text =
      "# Configuration of forebayd\n\n"
      "Generated by `forebayd --config-reference`; a test keeps it true. Every key can be set in "
      "the\nTOML file given by `--config`, and overridden by `--set KEY=VALUE`.\n\n"
      "`forebayd --check` checks a configuration and says whether the tiers of this machine hold "
      "all\nits data sets, as orders `global` and `partial` need it. If not, `WARNING` lines on "
      "stderr name a capacity\nthat would be enough. The exit code is 0 all the same, because "
      "order `block` also works with smaller\ntiers. The check reads names, sizes and headers of "
      "files, or a saved catalog, but no sample, and it\nends after 10 s at most. For a "
      "data set of a "
      "format without an index (tar, JSON lines) that was never\nstaged, it assumes the largest "
      "size that the data set can have.\n\n"
      "| key | default | meaning |\n|---|---|---|\n";
  for (const ConfigKey& key : ConfigKeys()) {
    text += fmt::format("| `{}` | {} | {} |\n", key.name,
                        key.default_text.empty() ? "(empty)" : fmt::format("`{}`",
                                                                           key.default_text),
                        key.help);
  }
  text += "\n## [[dataset]]\n\nOne table per data set.\n\n"
          "| key | default | meaning |\n|---|---|---|\n";
  // A table of its own, because these keys are not settable by --set.
  for (const DatasetKey& key : DatasetKeys()) {
    text += fmt::format("| `{}` | {} | {} |\n", key.name,
                        key.default_text.empty() ? "(empty)" : fmt::format("`{}`",
                                                                           key.default_text),
                        key.help);
  }
  return text;
}

}  // namespace forebay::daemon
