// Config: everything that a site or a job can set. One table of keys (config_keys.cc) yields the
// defaults, the checks, `forebayd --help` and docs/configuration.md, so they cannot disagree.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

struct Config {
  // [daemon]
  std::string socket;
  std::string state_dir;
  std::string job_id;
  std::string log_level;
  std::string log_format;              // text, json
  std::uint64_t workers = 0;           // 0: half the processors, at least 1
  std::string io_backend;              // auto, io_uring, threads
  std::string huge_pages;              // auto, transparent, off
  std::string metrics_listen;          // "host:port" on loopback; empty: off
  std::uint64_t exit_when_idle_s = 0;  // 0: never
  // [nodes], [peer]
  // none, pmix, pmix:events, directory:PATH, hosts:PATH, join:HOST:PORT
  std::string nodes_rendezvous;
  std::uint64_t nodes_free_places = 0;
  std::uint64_t nodes_rendezvous_timeout_s = 60;
  std::uint64_t nodes_late_ms = 2'000;
  std::uint64_t nodes_probe_answer_ms = 500;
  std::uint64_t nodes_suspicion_s = 5;
  std::uint64_t nodes_lost_readers_s = 30;
  std::string peer_interface;          // a name, a subnet or an address; empty: the only one
  std::string peer_ports;              // "7000", "7000-7099"; empty: any
  std::string peer_secret;             // file:PATH, none; empty: FOREBAY_JOB_SECRET, if it is set
  bool peer_allow_plaintext = false;
  bool peer_remote_clients = true;
  std::string peer_transport;          // grpc, mpi
  bool peer_payload_connections = true;
  std::uint64_t peer_channels = limits::kPeerChannels;
  std::string peer_module;             // path of the module for mpi; empty: the installed one
  // No keys, because they differ from node to node: --node-rank, --node-count; empty: not given.
  std::string node_rank;
  std::string node_count;
  // [tier]
  std::string ram_capacity;
  std::string ssd_directory;
  std::string ssd_capacity;
  bool ssd_direct = true;
  bool scrub_enabled = true;
  std::string scrub_bytes_per_second;
  // [slots], [stream]
  std::string slots_capacity;
  std::string view_pin_capacity;
  // [decode]
  std::string decode_capacity;
  // [stage]
  std::uint64_t stage_readers = 8;
  std::uint64_t stage_retry_for_s = 300;
  std::uint64_t stage_retry_max_interval_s = 3;
  std::uint64_t stage_hung_after_s = 30;
  bool stage_read_ahead = true;
  std::uint64_t stage_requests = 8;
  std::string stage_request;
  std::string stage_job_bytes_per_second;
  std::uint64_t stage_job_opens_per_second = 0;
  std::uint64_t stage_job_requests = 0;
  // [[dataset]]
  std::vector<stage::DatasetOptions> datasets;
};

// Values of the key peer.secret.
inline constexpr std::string_view kSecretFile = "file:";
inline constexpr std::string_view kNoSecret = "none";

// One key of the table: its name, its default, its meaning, and the function that sets it.
struct ConfigKey {
  std::string_view name;           // "tier.ram.capacity"
  std::string_view default_text;
  std::string_view help;
  std::function<Status(Config&, const std::string&)> set;
};
std::span<const ConfigKey> ConfigKeys();

struct DatasetKey {
  std::string_view name;           // "path", within [[dataset]]
  std::string_view default_text;
  std::string help;
};
// The keys of a [[dataset]] table: those of every data set, and those of formats
// (catalog::FormatKey).
std::span<const DatasetKey> DatasetKeys();

// All keys at their defaults.
Config DefaultConfig();
// Sets one key by its full name. kInvalidArgument names the key and says what is wrong with the
// value; kNotFound: there is no such key (the message names the most similar one).
Status SetConfigKey(Config& config, std::string_view name, const std::string& value);
// Reads a TOML file and sets its keys in `config`; other keys keep their values. Errors name the
// file, the line and the key.
Status LoadConfigFile(const std::string& path, Config& config);
// As LoadConfigFile, for other TOML text; errors name it `name`.
Status LoadConfigText(std::string_view text, const std::string& name, Config& config);
// Checks what can only be checked once everything is read: the number and names of data sets.
Status CheckConfig(const Config& config);
// The text of docs/configuration.md.
std::string ConfigReference();

}  // namespace forebay::daemon
