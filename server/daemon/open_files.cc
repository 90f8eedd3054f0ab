// If the limit of open files cannot be read, the largest numbers are used that are allowed.
#include "server/daemon/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "proto/contract/limits.h"

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
  // A rough number of files that a daemon needs without other nodes. The doctor estimates it from
  // the configuration (DescriptorsNeeded).
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

}  // namespace forebay::daemon
