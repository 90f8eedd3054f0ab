// How many connections with other nodes a daemon may have, by the files that it may open. forebayd
// raises its soft limit to the hard one before.
#pragma once

#include <cstdint>

namespace forebay::daemon {

// Channels of gRPC to other nodes: as many as the configuration says (peer.channels), and a quarter
// of the files at most. About as many connections come from other nodes, so the half is left for
// everything else.
std::uint32_t PeerChannelsMax(std::uint64_t configured);

// Connections for bytes of samples in each direction: limits::kPeerPayloadConnectionsMax at most,
// and a sixteenth of the files. Those that have not shown a certificate yet may take as much.
std::uint32_t PayloadConnectionsMax();

}  // namespace forebay::daemon
