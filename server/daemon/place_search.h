// PlaceSearch: finds a free place of a job that runs, for a daemon that joins it, and takes it.
//
// The daemon asks the node whose address it was given for the list of places. Then it tells the
// first node of the list that answers which place it takes. All daemons that join ask that node
// first, so two of them seldom get the same place. If they do, because nodes disagree about which
// of them answer, each of the two is used by some of the nodes (docs/nodes_design.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/peer/grpc_peers.h"
#include "server/peer/job_certificates.h"
#include "server/peer/node_report.h"
#include "server/peer/peer_identity.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::daemon {

// The entry of a node as rpc Join carries it: a node file with nothing else.
std::vector<std::byte> EntryFile(const rendezvous::NodeEntry& node);

struct PlaceSearchParts {
  io::Clock& clock;                  // borrowed
  std::string address;               // of a node of the job
  peer::PeerIdentity identity;       // of this node, without the digest of the list of nodes
  rendezvous::NodeEntry own;         // with the address at which this node listens
  std::optional<NodeRank> wanted = {};  // the place that it is to take; none: any
  bool allow_plaintext = false;
  peer::NodeCertificates certificates = {};
  // Sleeps for so many milliseconds; false: the daemon is to stop.
  std::function<bool(std::int64_t ms)> pause;
};

struct TakenPlace {
  NodeRank rank;
  std::vector<rendezvous::NodeEntry> nodes;  // by rank, this one among them
  std::string address_before;  // of the node that was in the place; empty: none was
};

class PlaceSearch {
 public:
  explicit PlaceSearch(PlaceSearchParts parts) : parts_(std::move(parts)) {}

  // Tries again, about once a second, until `deadline_ns`: a node that is lost counts as dead only
  // after some seconds. Errors: that of the last attempt, with what is wrong: the node does not
  // answer, no place is free, this node does not fit the place, or the job is another one;
  // kCancelled: the daemon is to stop.
  Result<TakenPlace> Run(std::int64_t deadline_ns);
  // The places of the job, by rank, as the node at that address knows them now.
  Result<std::vector<rendezvous::NodeEntry>> List(const std::string& address);

 private:
  struct Places {
    std::vector<rendezvous::NodeEntry> nodes;  // by rank
    std::vector<NodeRank> free;
  };
  Result<TakenPlace> TryOnce(std::int64_t deadline_ns);
  Result<Places> ReadPlaces(const std::string& address);
  Result<std::vector<NodeRank>> Candidates(const Places& places) const;
  Result<std::string> Tell(const Places& places, const rendezvous::NodeEntry& taken);
  Result<peer::JoinAnswer> Ask(peer::GrpcPeers& peers, NodeRank to, peer::JoinAsked asked);
  Result<std::unique_ptr<peer::GrpcPeers>> PeersAt(std::map<NodeRank, std::string> addresses,
                                                   std::uint64_t list_digest) const;

  const PlaceSearchParts parts_;
};

}  // namespace forebay::daemon
