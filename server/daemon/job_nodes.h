// JobNodes: the nodes of the job as this daemon deals with them. It finds them at its start, asks
// and answers them while it serves, and leaves them at its end. In a job of one node it has nothing
// to do, and the other rooms get null pointers in place of what asks other nodes.
//
//   FOREBAY_ASSIGN(nodes, JobNodes::Join(...));   // waits for all nodes
//   ... rooms are made with nodes->membership(), nodes->extents(), nodes->rows() ...
//   FOREBAY_TRY(nodes->Serve(parts));             // answers the others from now on
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/v1/data.pb.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/arrival.h"
#include "server/daemon/departure.h"
#include "server/daemon/gfs_yield.h"
#include "server/daemon/job_end.h"
#include "server/daemon/job_launch.h"
#include "server/daemon/node_finder.h"
#include "server/daemon/node_table.h"
#include "server/daemon/row_carriers.h"
#include "server/daemon/status_pings.h"
#include "server/fetch/row_source.h"
#include "server/peer/grpc_peers.h"
#include "server/peer/job_certificates.h"
#include "server/peer/peer_identity.h"
#include "server/peer/peer_server.h"
#include "server/plan/membership.h"
#include "server/probe/node_prober.h"
#include "server/rendezvous/kept_list.h"
#include "server/rendezvous/node_entry.h"
#include "server/stage/extent_source.h"
#include "server/stage/first_read_keepers.h"
#include "server/stage/gfs/share_source.h"
#include "server/stage/part_source.h"
#include "server/stage/stat_source.h"

namespace forebay::daemon {

// Thread-safe, but for Join, Serve, Tick and the functions that end it, which one thread calls.
class JobNodes {
 public:
  // Listens for other nodes and blocks until all of them are known, for nodes.rendezvous_timeout_s
  // at most (NodeFinder, which has the errors). After an error nothing is left.
  static Result<std::unique_ptr<JobNodes>> Join(JobLaunch launch, const JoinParts& parts);
  // StopAnswering must have waited, or threads of the stager must be able to end.
  ~JobNodes();

  plan::Membership& membership() { return *membership_; }
  // These ask the other nodes; all are null in a job of one node.
  stage::ExtentSource* extents() { return peers_.get(); }
  stage::FirstReadKeepers* keepers() { return peers_.get(); }
  stage::PartSource* catalog_parts() { return peers_.get(); }
  stage::StatSource* object_stats() { return peers_.get(); }
  fetch::RowSource* rows() { return peers_.get(); }
  stage::ShareSource* shares() { return peers_.get(); }
  // Whether this daemon takes the place of one that was killed, or of another node.
  bool has_returned() const { return has_returned_ || has_joined_; }
  // Whether this daemon may have taken the place of a killed one. A list of hosts is the same in
  // each launch, so a daemon that is started again there cannot know.
  bool may_have_returned() const {
    return has_returned() || launch_.choice.kind == rendezvous::RendezvousKind::kHosts;
  }

  // Answers other nodes from now on, with `parts`, until StopAnswering.
  Status Serve(const peer::PeerServerParts& parts);
  // Blocks until every node has answered, and its name was looked up. Only a list of hosts needs
  // the former: elsewhere Join has shown that all nodes listen. kDeadlineExceeded names the nodes
  // that do not; kCancelled as in Join.
  Status AwaitNodes();

  // Has a node leave the job: the others take its place, and it hands over what it has, for
  // `time_ms` at most (Departure). `name`: as rendezvous::FindNode has it; it may be this node.
  // Blocks until that node knows, for limits::kFinishedPingMs at most. kFailedPrecondition: in a
  // job of one node, or over MPI, nobody can leave. Thread-safe.
  Status Depart(const std::string& name, std::int64_t time_ms);
  // Whether this node has left, or another one has taken its place, so that it may end.
  bool HasDeparted() const {
    return has_lost_place_ || (departure_ && departure_->IsOver());
  }
  // Call it before Serve. A node that has joined the job yields until `has_staged` returns true,
  // which Tick calls (Arrival).
  void SetHasStaged(std::function<bool()> has_staged);
  // Call it before Serve; see Departure.
  void SetTakeOver(std::function<bool(bool begins)> take_over);

  // This node yields from now on while its calls to the GFS take much longer than those of other
  // nodes (GfsYield). `begun`: ends what waits for the GFS on this node. Call it before Tick.
  void YieldWhileSlow(std::function<stage::GfsCalls::Pace()> pace, std::function<void()> begun);

  // Probes other nodes (probe::NodeProber), and after Finish asks those that are not known to have
  // finished; likewise for Depart. Call it about once a second. `serves_client_of_lost`: a client
  // whose own daemon is gone reads here.
  void Tick(bool serves_client_of_lost);

  // The readers of this node have ended for good. It still answers others, which learn this by
  // their pings. Thread-safe.
  void Finish() { end_->Finish(); }
  bool has_finished() const { return end_->has_finished(); }
  // Whether this node has finished, and waits for no other one (JobEnd). A job of one node has all
  // it needs with Finish. Thread-safe.
  bool HaveAllFinished() { return end_->HaveAllFinished(); }

  struct View {
    NodeRank rank;
    std::string name;     // "node17:/local/forebay (job 4711)"
    std::string address;
    std::uint32_t weight = 1;
    bool is_self = false;
    // Of other nodes: what this daemon has received from them, and their answers.
    peer::LinkFigures received;
    bool is_left_out = false;  // this daemon does not use it at present
    bool is_leaving = false;   // it leaves the job (Depart)
    bool is_free = false;      // no node is in this place
    StatusPing ping = {.is_unasked = false};
  };
  // The nodes by rank, after each other node was asked; none in a job of one node. Blocks as
  // PingForStatus does. Thread-safe.
  std::vector<View> Ask();

  // The nodes that serve clients of this one if this daemon is gone; no addresses: none does.
  v1::RemoteDaemons ForClients() const;

  // Ends all requests to other nodes with kCancelled; later ones fail at once.
  void StopAsking();
  // Ends all requests of other nodes. With `waits`, also waits until nothing refers to extents of
  // this node; threads of the stager must be able to end.
  void StopAnswering(bool waits);
  // Whether the connections between nodes are encrypted (docs/security.md).
  bool is_encrypted() const { return !certificates_.empty(); }
  // Returns how they are protected, as a value of StatusReply.node_connections; empty in a job of
  // one node. Does not change after Join. Thread-safe.
  std::string_view connections() const;
  // Removes what this node has published for the others, and with `in_good_order` the list that it
  // has kept for a daemon that takes its place. May block on the GFS, and for some seconds on the
  // other nodes if MPI is used, which wants to be ended by all at the same time.
  void Leave(bool in_good_order);

 private:
  JobNodes(JobLaunch launch, const JoinParts& parts);
  bool Pause(std::int64_t ms) const;
  void HearLauncherOrDisconnect();
  Status UseNodes(FoundNodes found);
  void MakeProber(const std::vector<rendezvous::NodeEntry>& nodes);
  void MakeEnd(const std::vector<rendezvous::NodeEntry>& nodes);
  void MakeDeparture();
  void MakeArrival();
  bool IsDead(NodeRank node) const;
  std::int64_t CallDeadline() const;  // of a short call that begins now
  Status UseNewNode(const rendezvous::NodeEntry& node);
  void GiveUpPlace(const rendezvous::NodeEntry& node);
  Result<peer::LeaveAnswer> HearDeparture(NodeRank node, std::int64_t time_ms);
  Result<peer::JoinAnswer> HearArrival(const peer::JoinAsked& asked);
  void GoOnToLeave();
  void KeepDeparture(std::int64_t time_ms);
  void KeepNewList();
  void ForgetTheOneBefore();
  Status AwaitAnswers();
  Status FindHosts();

  const JoinParts parts_;
  JobLaunch launch_;  // its connection to PMIx is closed once it is not used
  const std::int64_t deadline_ns_ = 0;  // of Join and AwaitNodes
  NodeFinder finder_;
  // None: nothing is kept. Once other nodes are answered, and until Leave, it is used under
  // departure_mutex_.
  std::optional<rendezvous::KeptList> kept_list_;
  Mutex departure_mutex_;
  bool has_returned_ = false;  // in the place of a daemon that was killed
  bool has_joined_ = false;    // the running job, just now
  bool is_new_ = false;        // its place had another node at first
  bool had_node_ = false;      // the place in which it has joined, and it was not told yet
  std::atomic<bool> has_lost_place_ = false;  // to another node
  std::atomic<bool> has_new_list_ = false;  // a node has joined since the list was kept
  std::function<bool()> has_staged_;
  RowCarriers carriers_;  // outlives server_ and peers_, which use it
  std::unique_ptr<peer::PeerServer> server_;
  peer::NodeCertificates certificates_;  // of this node; empty: plaintext
  peer::PeerIdentity identity_;
  NodeTable table_;
  std::unique_ptr<plan::Membership> membership_;
  std::unique_ptr<peer::GrpcPeers> peers_;
  std::unique_ptr<probe::NodeProber> prober_;
  std::unique_ptr<JobEnd> end_;
  std::unique_ptr<Departure> departure_;
  std::unique_ptr<Arrival> arrival_;
  std::unique_ptr<GfsYield> gfs_yield_;
};

}  // namespace forebay::daemon
