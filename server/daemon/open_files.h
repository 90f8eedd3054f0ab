// Says how many files a daemon needs, and decides how many connections with other nodes it may
// have, by the number of files that it may open. forebayd raises its soft limit to the hard one
// before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "server/daemon/config/config.h"

namespace forebay::daemon {

// About how many files a daemon with `clients` clients has open, without other nodes.
std::uint64_t FilesNeeded(const Config& config, std::uint64_t clients);

// Too few files may be open for the connections of a job. The daemon works all the same, closes
// connections and opens them again, and other nodes may have to wait for it.
struct TooFewFiles {
  std::string text;
  std::string remedy;
};
// Nothing: there are enough, or the limit is not known.
std::optional<TooFewFiles> FindTooFewFiles(const Config& config, std::uint32_t node_count);

// Returns how many channels of gRPC to other nodes there may be: as many as the configuration says
// (peer.channels), or fewer if not enough files may be open. It leaves as many files for the
// connections that come from other nodes.
std::uint32_t PeerChannelsMax(std::uint64_t configured);

// Returns how many nodes are asked at a time if all of them are: limits::kNodesAskedAtATime, or
// PeerChannelsMax if that is less, so that connections are closed as fast as others are opened.
std::size_t NodesAskedAtATime(std::uint64_t configured);

// Returns how many connections for bytes of samples there may be in each direction: at most
// limits::kPeerPayloadConnectionsMax, and at most a sixteenth of the files. Connections that have
// not shown a certificate yet may take as many files again.
std::uint32_t PayloadConnectionsMax();

}  // namespace forebay::daemon
