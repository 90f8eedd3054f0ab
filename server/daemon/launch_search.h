// Whether a launch of the job still runs that this node belonged to before its daemon was killed.
#pragma once

#include <optional>
#include <vector>

#include "proto/contract/ids.h"
#include "server/io/clock.h"
#include "server/peer/grpc_peers.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::daemon {

// Returns a node of the list that serves and belongs to its launch. Nullopt: none was found within
// some four seconds. `nodes` is the list of that launch, by rank; `asking` has this node's identity
// in it, and the addresses of all others. Blocks.
std::optional<NodeRank> FindAnswer(const std::vector<rendezvous::NodeEntry>& nodes,
                                   const peer::GrpcPeersOptions& asking, io::Clock& clock);

}  // namespace forebay::daemon
