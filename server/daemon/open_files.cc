#include "server/daemon/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "proto/contract/limits.h"

namespace forebay::daemon {
namespace {

// `part`: one of so many files that may be open.
std::uint32_t AtMost(std::uint32_t most, rlim_t part) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return most;
  return static_cast<std::uint32_t>(std::clamp<rlim_t>(files.rlim_cur / part, 1, most));
}

}  // namespace

// A quarter of the files, or what is left of many when everything else has what it needs.
std::uint32_t PeerChannelsMax(std::uint64_t configured) {
  constexpr rlim_t kOwnFiles = 400;
  constexpr rlim_t kOthers = kOwnFiles + rlim_t{2} * limits::kPeerPayloadConnectionsMax;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return static_cast<std::uint32_t>(configured);
  const rlim_t rest = files.rlim_cur > kOthers ? (files.rlim_cur - kOthers) / 2 : 0;
  const rlim_t most = std::max<rlim_t>({1, files.rlim_cur / 4, rest});
  return static_cast<std::uint32_t>(std::min<rlim_t>(configured, most));
}

std::size_t NodesAskedAtATime(std::uint64_t configured) {
  return std::min<std::size_t>(limits::kNodesAskedAtATime, PeerChannelsMax(configured));
}

std::uint32_t PayloadConnectionsMax() { return AtMost(limits::kPeerPayloadConnectionsMax, 16); }

}  // namespace forebay::daemon
