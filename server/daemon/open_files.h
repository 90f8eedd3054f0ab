// How many connections with other nodes a daemon may have, by the files that it may open. forebayd
// raises its soft limit to the hard one before.
#pragma once

#include <cstdint>

namespace forebay::daemon {

// Channels of gRPC to other nodes: as many as the configuration says (peer.channels), or fewer if
// not enough files may be open. About as many connections come from other nodes.
std::uint32_t PeerChannelsMax(std::uint64_t configured);

// Connections for bytes of samples in each direction: limits::kPeerPayloadConnectionsMax at most,
// and a sixteenth of the files. Those that have not shown a certificate yet may take as much.
std::uint32_t PayloadConnectionsMax();

}  // namespace forebay::daemon
