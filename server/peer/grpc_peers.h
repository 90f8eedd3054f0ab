// GrpcPeers: asks the other nodes of the job for extents, rows, catalog parts and sizes of files,
// gives them checksums of first reads, borrows from their shares of the job's caps, and probes
// them, over gRPC. It is what ExtentSupplier, RowRouter, Cataloguer, FirstReadSharing,
// ShareBorrower and NodeProber are given in a job of several nodes;
// PeerServer answers on the other node. The addresses of the nodes are given as a table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"
#include "server/peer/link_watch.h"
#include "server/peer/node_report.h"
#include "server/peer/open_channels.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/job_certificates.h"
#include "server/peer/peer_identity.h"
#include "server/probe/probe_transport.h"
#include "server/stage/extent_source.h"
#include "server/stage/first_read_keepers.h"
#include "server/stage/gfs/share_source.h"
#include "server/stage/part_source.h"
#include "server/stage/stat_source.h"

namespace forebay::peer {

class PeerLink;

struct GrpcPeersOptions {
  PeerIdentity identity;                       // of this node
  // "HOST:PORT" of the other nodes; empty: nobody has that place of the job yet, and each request
  // to it fails at once with kUnavailable (Redirect).
  std::map<NodeRank, std::string> addresses;
  bool allow_plaintext = false;                // to addresses that are not loopback
  NodeCertificates certificates = {};          // of this node; empty: plaintext
  // Brings the bytes of rows, if it is not null. Borrowed; `self` is this node's rank.
  PayloadCarrier* carrier = nullptr;
  NodeRank self = NodeRank(0);
  std::size_t channels_max = limits::kPeerChannels;  // of OpenChannels
};

// Thread-safe. Connects to a node when it is asked first. Requests of several batches are under way
// at the same time; rows beyond what FlightBound allows wait, without a thread. Calls for
// extents and rows that a node refuses because it is too busy are repeated (BusyRetry) within the
// deadline of the request; after it the error is stage::TooBusy. It is stage::NotSent if the
// deadline comes while the request waits for its turn, which says nothing about the node.
class GrpcPeers final : public stage::ExtentSource,
                        public stage::FirstReadKeepers,
                        public stage::PartSource,
                        public stage::StatSource,
                        public fetch::RowSource,
                        public stage::ShareSource,
                        public probe::ProbeTransport {
 public:
  // Checks the addresses (CheckPeerAddress), and changes malloc's settings for the process
  // (KeepMessageMemory). The clock is borrowed.
  static Result<std::unique_ptr<GrpcPeers>> Create(const GrpcPeersOptions& options,
                                                   io::Clock& clock);
  // Nobody may ask meanwhile.
  ~GrpcPeers() override;
  // Ends all requests with kCancelled and waits for that; later ones fail at once. Call it before
  // the threads end that ask.
  void Stop();
  // Watches the requests from now on (LinkWatch), until Stop. At most once.
  void Watch(const LinkWatchParts& parts);
  // Another node has found these slow (LinkWatch::HearSlow). Call it after Watch.
  void HearSlow(std::span<const NodeRank> nodes) { watch_->HearSlow(nodes); }
  // From now on the node with this rank, one of the table, is another one at `address`, or nobody
  // if that is empty. Requests to the one before end as if it had not answered, and what was found
  // about it does not count (LinkWatch::Forget). No effect if it has this address already, and
  // after Stop. Call it after Watch, if at all that is called. Errors of CheckPeerAddress;
  // kUnavailable: there is no such node.
  Status Redirect(NodeRank node, const std::string& address);

  // Blocks for limits::kPeerExtentDeadlineMs at most, and while `allocate` does.
  Result<stage::SuppliedExtent> Read(const stage::ExtentRequest& request,
                                     const stage::AllocateImage& allocate,
                                     io::IoQueue& queue) override;
  void ReportWrong(NodeRank node) override;
  // Blocks for limits::kPeerPartDeadlineMs at most.
  Result<stage::PartAnswer> ReadPart(const stage::PartRequest& request,
                                     catalog::TableSpool& part) override;
  // Blocks for limits::kPeerStatDeadlineMs at most.
  Result<std::vector<io::FileInfo>> Stat(const stage::StatRequest& request) override;
  // A request of many rows is sent as several calls.
  void Read(std::shared_ptr<const fetch::RowRequest> request,
            fetch::RowSource::Done done) override;
  void Keep(stage::KeepRequest request, Kept kept) override;
  // Whether the node answers, and what it reports. `done` is called once, from any thread, perhaps
  // within this call. `has_finished`: tells the node also whether this one has finished.
  using Pinged = std::function<void(Result<NodeReport>)>;
  void Ping(NodeRank node, std::int64_t deadline_ns, Pinged done,
            std::optional<bool> has_finished = std::nullopt);

  // Tells `to` that `node` leaves the job (LeaveRequest of peer.proto). `told` gets whether `to`
  // has taken over what it has room for, and whether it has left the node out; it is called once,
  // at the deadline at the latest.
  using Told = std::function<void(const Result<LeaveAnswer>&)>;
  void Leave(NodeRank to, NodeRank node, std::int64_t time_ms, std::int64_t deadline_ns,
             Told told);

  // This node joins the job (JoinRequest of peer.proto), and asks `to` for the list of nodes, or
  // tells it which place it takes. `asked.node` is set to this node's identity. `joined` is called
  // once, at the deadline at the latest.
  using Joined = std::function<void(const Result<JoinAnswer>&)>;
  void Join(NodeRank to, JoinAsked asked, std::int64_t deadline_ns, Joined joined);

  void Probe(NodeRank to, std::optional<NodeRank> target, const probe::Gossip& gossip,
             std::int64_t deadline_ns, probe::ProbeTransport::Done done) override;
  void GiveUp(NodeRank node) override;
  void Borrow(NodeRank node, const stage::ShareAsk& ask, std::int64_t deadline_ns,
              stage::ShareSource::Answered answered) override;

  // Returns what this node has received from `node`, which must be in the table.
  LinkFigures figures(NodeRank node) const;
  // Returns to how many nodes there is a channel (OpenChannels).
  std::size_t open_channels() const { return channels_.count(); }

 private:
  GrpcPeers(const GrpcPeersOptions& options, io::Clock& clock);
  Result<PeerLink*> LinkTo(NodeRank node) const;
  std::size_t node_count() const;  // of the job

  const PeerIdentity own_;
  const std::uint64_t identity_;  // digest of it
  const bool allow_all_;          // addresses, as of CheckPeerAddress
  io::Clock& clock_;
  PayloadCarrier* const carrier_;
  const NodeRank self_;
  OpenChannels channels_;  // of links_
  std::map<NodeRank, std::unique_ptr<PeerLink>> links_;  // does not change
  std::atomic<bool> is_stopping_ = false;
  std::unique_ptr<LinkWatch> watch_;
  std::jthread watch_thread_;  // runs `watch_`
};

}  // namespace forebay::peer
