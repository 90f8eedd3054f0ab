// How many connections with other nodes a daemon may have, by the files that it may open. forebayd
// raises its soft limit to the hard one before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::daemon {

// Channels of gRPC to other nodes: as many as the configuration says (peer.channels), or fewer if
// not enough files may be open. About as many connections come from other nodes.
std::uint32_t PeerChannelsMax(std::uint64_t configured);

// Nodes that are asked at a time if all of them are: limits::kNodesAskedAtATime, or PeerChannelsMax
// if that is less, so that connections are closed as fast as others are opened.
std::size_t NodesAskedAtATime(std::uint64_t configured);

// Connections for bytes of samples in each direction: limits::kPeerPayloadConnectionsMax at most,
// and a sixteenth of the files. Those that have not shown a certificate yet may take as much.
std::uint32_t PayloadConnectionsMax();

}  // namespace forebay::daemon
