#include "server/daemon/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "proto/contract/limits.h"

namespace forebay::daemon {
namespace {

// `part`: one of so many files that may be open.
std::uint32_t AtMost(std::uint64_t most, rlim_t part) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return static_cast<std::uint32_t>(most);
  return static_cast<std::uint32_t>(std::clamp<rlim_t>(files.rlim_cur / part, 1, most));
}

}  // namespace

std::uint32_t PeerChannelsMax(std::uint64_t configured) { return AtMost(configured, 4); }

std::uint32_t PayloadConnectionsMax() { return AtMost(limits::kPeerPayloadConnectionsMax, 16); }

}  // namespace forebay::daemon
