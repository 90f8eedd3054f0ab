// NodeFinder: how a daemon finds the nodes of its job at its start. It exchanges its entry with all
// others (rendezvous), or takes the place of a daemon of this node that was killed, or joins a job
// that runs already, in a free place. Meanwhile it listens for other nodes, and lets them wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/daemon/job_launch.h"
#include "server/daemon/place_search.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/peer/job_certificates.h"
#include "server/peer/peer_identity.h"
#include "server/peer/peer_server.h"
#include "server/rendezvous/directory_rendezvous.h"
#include "server/rendezvous/kept_list.h"
#include "server/rendezvous/node_entry.h"
#include "server/rendezvous/rendezvous.h"

namespace forebay::daemon {

struct JoinParts {
  const Config& config;
  // For nodes.rendezvous = "directory:PATH". Not the one that repeats calls to the GFS.
  io::IoBackend& backend;
  io::Clock& clock;
  std::uint64_t capacity_bytes = 0;  // of the tiers of this node together
  std::uint64_t nonce = 0;           // tells this daemon from every other one
  // The directory of the daemon's socket. No other daemon uses it, and files in it stay if this
  // daemon is killed.
  std::string socket_directory;
  // Readable when the daemon is to stop; -1: it is never asked to.
  int stop_fd = -1;
  // Lets the thread that calls Tick do so at once. Called by any thread.
  std::function<void()> wake;
  // Answers clients of other nodes, for as long as this object lives (peer.remote_clients).
  grpc::Service* clients = nullptr;
};

struct FoundNodes {
  NodeRank self = NodeRank(0);
  std::vector<rendezvous::NodeEntry> nodes = {};  // by rank, with free places
  std::unique_ptr<peer::PeerServer> server = nullptr;  // listens, and does not serve yet
  peer::NodeCertificates certificates = {};        // of this node; empty: plaintext
  peer::PeerIdentity identity = {};                // of this node
  // Keeps the list for a daemon that takes the place of this one. None: nothing is kept.
  std::optional<rendezvous::KeptList> kept_list = std::nullopt;
  // It takes the place of a daemon of this node that was killed.
  bool has_returned = false;
  // It has joined the job, and the other nodes do not know it yet.
  bool has_joined = false;
  // The address of the node that was in this place before. It is empty if there was none. If
  // has_returned is true, the address is kept beside kept_list instead.
  std::string address_before = {};
};

// The addresses of all nodes but `self`; empty for a place that is free. GrpcPeers needs all of
// them, also to ask only some: it refuses answers about nodes that the table does not have.
std::map<NodeRank, std::string> AddressesOf(const std::vector<rendezvous::NodeEntry>& nodes,
                                            NodeRank self);

// Returns what answers clients of other nodes on a daemon of this configuration, or null if nothing
// does. It is borrowed from `parts`.
grpc::Service* ClientsOfOthers(const JoinParts& parts, const peer::NodeCertificates& certificates);

// Not thread-safe.
class NodeFinder {
 public:
  // All are borrowed. The connection to PMIx, if there is one, is used by Find.
  NodeFinder(JobLaunch& launch, const JoinParts& parts, std::int64_t deadline_ns)
      : launch_(launch), parts_(parts), deadline_ns_(deadline_ns) {}

  // Blocks until all nodes are known, until the deadline at most. Nullopt: a job of one node, which
  // needs none of this. Errors: those of Rendezvous::Exchange and PlaceSearch::Run; keys of the
  // configuration are named; kCancelled: stop_fd became readable.
  Result<std::optional<FoundNodes>> Find();
  // Removes what this node has published for the others. May block on the GFS.
  void Leave();

 private:
  bool Pause(std::int64_t ms) const;
  Result<rendezvous::NodeEntry> PrepareEntry(NodeRank rank, const std::string& host_name);
  Status Join(const std::string& host_name);
  Result<rendezvous::NodePlace> FindPlace(const std::string& host_name,
                                          std::uint16_t& port_of_list);
  Status Meet(rendezvous::NodeEntry own, const rendezvous::NodePlace& place,
              std::uint16_t port_of_list);
  rendezvous::PauseEnd PauseOrReturn(NodeRank self, std::int64_t ms);
  Result<rendezvous::Rendezvous*> OpenRendezvous(NodeRank self);
  Status Listen(std::uint16_t port_of_list);
  peer::PeerIdentity IdentityAt(const std::string& address,
                                const std::vector<rendezvous::NodeEntry>& nodes) const;
  void OpenKeptList();
  bool ReturnTo(NodeRank self, std::vector<rendezvous::NodeEntry> kept);
  bool HasAnswer(NodeRank self);
  PlaceSearchParts SearchFor(rendezvous::NodeEntry own) const;

  JobLaunch& launch_;
  const JoinParts& parts_;
  const std::int64_t deadline_ns_;
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<rendezvous::Rendezvous> rendezvous_;  // null with PMIx, and if it joins
  std::uint64_t config_digest_ = 0;
  // The list that a daemon of this node has left, while none of its nodes has answered.
  std::optional<std::vector<rendezvous::NodeEntry>> earlier_;
  std::int64_t next_return_ns_ = 0;  // when they are asked again
  // Another node is in the place of this one by now.
  std::optional<Error> lost_place_;
  FoundNodes found_;
};

}  // namespace forebay::daemon
