// If the limit of open files cannot be read, the largest numbers are used that are allowed.
#include "server/daemon/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/tier_config.h"
#include "server/io/log.h"

namespace forebay::daemon {
namespace {

// Returns one of `part` files that may be open, but 1 at least and `most` at most.
std::uint32_t AtMost(std::uint32_t most, rlim_t part) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return most;
  return static_cast<std::uint32_t>(std::clamp<rlim_t>(files.rlim_cur / part, 1, most));
}

}  // namespace

// Channels may take an eighth of the files, and connections from other nodes another one. With that
// all parts of a daemon stay below a limit of 1,024 files together. Where many files may be open,
// these two have all that the rest of the daemon does not need.
std::uint32_t PeerChannelsMax(std::uint64_t configured) {
  // A rough number of files that a daemon needs without other nodes. DescriptorsNeeded estimates it
  // from the configuration.
  constexpr rlim_t kOwnFiles = 400;
  constexpr rlim_t kOthers = kOwnFiles + rlim_t{2} * limits::kPeerPayloadConnectionsMax;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return static_cast<std::uint32_t>(configured);
  const rlim_t rest = files.rlim_cur > kOthers ? (files.rlim_cur - kOthers) / 2 : 0;
  const rlim_t most = std::max<rlim_t>({1, files.rlim_cur / 8, rest});
  return static_cast<std::uint32_t>(std::min<rlim_t>(configured, most));
}

std::size_t NodesAskedAtATime(std::uint64_t configured) {
  return std::min<std::size_t>(limits::kNodesAskedAtATime, PeerChannelsMax(configured));
}

std::uint32_t PayloadConnectionsMax() { return AtMost(limits::kPeerPayloadConnectionsMax, 16); }

std::uint64_t DescriptorsNeeded(const Config& config, std::uint64_t clients) {
  // The standard streams, leases, sockets, event descriptors, gRPC's own.
  constexpr std::uint64_t kOthers = 48;
  // gRPC's and the acceptor's, of one socket.
  constexpr std::uint64_t kPerClient = 2;
  std::uint64_t count = kOthers + clients * kPerClient + config.datasets.size();
  const auto ram = RamArenaOptions(config);
  const auto slots = SlotArenaOptions(config);
  for (const auto& options : {ram, slots}) {
    if (options.has_value()) count += options->capacity_bytes / options->region_bytes + 1;
  }
  // A queue of each thread that reads: stagers and workers.
  const std::uint64_t workers =
      config.workers != 0 ? config.workers : std::max(2U, std::thread::hardware_concurrency() / 2);
  count += config.stage_readers + workers;
  // Objects are held a little longer than they count (GfsReader).
  count += limits::kOpenObjectsMax * 5 / 4;
  return config.ssd_directory.empty() ? count : count + limits::kSegmentsOpenMax;
}

// This node has connections to no more nodes than peer.channels says, but one may come from each
// other node: all may ask the last one that reads whether it has finished.
std::optional<FewOpenFiles> FindFewOpenFiles(const Config& config, std::uint32_t node_count) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return std::nullopt;
  const std::uint64_t needed =
      DescriptorsNeeded(config, /*clients=*/1) + node_count +
      std::min<std::uint64_t>(node_count, config.peer_channels) +
      std::uint64_t{2} * std::min(node_count, limits::kPeerPayloadConnectionsMax);
  if (files.rlim_cur >= needed) return std::nullopt;
  return FewOpenFiles{
      .text = fmt::format("{} files may be open, and a daemon of a job of {} nodes needs up to {}",
                          files.rlim_cur, node_count, needed),
      .remedy = fmt::format("have the hard limit of open files raised to {} (ulimit -n, "
                            "limits.conf, or LimitNOFILE of the batch system's service)",
                            needed)};
}

void WarnOfFewOpenFiles(const Config& config, std::uint32_t node_count) {
  const std::optional<FewOpenFiles> few = FindFewOpenFiles(config, node_count);
  if (few) log::Warn("{}; remedy: {}", few->text, few->remedy);
}

}  // namespace forebay::daemon
