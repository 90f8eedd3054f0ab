// Each request becomes calls on the link to its node. A request for rows is cut into calls of
// bounded size, so that the node that answers needs bounded memory and the calls of several batches
// take turns; the last call that ends calls `done`.
//
// Calls for data wait for Hello (PeerLink::Start), so that no data come from a node with another
// configuration or of another job. Pings, probes, and calls about loans, departures and arrivals do
// not wait for it (StartAtOnce): they have to come in time, and if they carry an identity, the node
// that answers compares it (MemberAnswers).
#include "server/peer/grpc_peers.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/client_context.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/peer/busy_retry.h"
#include "server/peer/channel_settings.h"
#include "server/peer/extent_call.h"
#include "server/peer/member_requests.h"
#include "server/peer/message_memory.h"
#include "server/peer/part_call.h"
#include "server/peer/peer_address.h"
#include "server/peer/peer_link.h"
#include "server/peer/rows_call.h"
#include "server/peer/unary_call.h"

namespace forebay::peer {
namespace {

// The calls of one request. Keeps the request until the last one has ended.
class RequestCalls {
 public:
  RequestCalls(std::shared_ptr<const fetch::RowRequest> request, std::size_t calls,
               fetch::RowSource::Done done)
      : request_(std::move(request)), done_(std::move(done)), under_way_(calls) {}

  void Ended(const Status& status) {
    Status outcome;
    // `done` is called without the mutex, because it may ask again.
    {
      const MutexLock lock(mutex_);
      if (!status.has_value() && !error_) error_ = status.error();  // the first error is reported
      if (--under_way_ > 0) return;
      if (error_) outcome = *error_;
    }
    done_(outcome);
  }

 private:
  const std::shared_ptr<const fetch::RowRequest> request_;
  const fetch::RowSource::Done done_;
  Mutex mutex_;
  std::size_t under_way_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<Error> error_ FOREBAY_GUARDED_BY(mutex_);
};

// Rows of fewer bytes come with the answer over gRPC, which is waited for anyway.
constexpr std::uint64_t kCarriedBytesMin = 64 * 1024;

struct CallRows {
  std::vector<fetch::Row> rows;
  std::uint64_t bytes = 0;
};

// The first comparison keeps the subtraction in the second one from wrapping.
bool Fits(const CallRows& call, std::uint64_t bytes) {
  return call.rows.size() < limits::kPeerRowsMax && bytes <= limits::kPeerCallBytesMax &&
         call.bytes <= limits::kPeerCallBytesMax - bytes;
}

std::vector<CallRows> CutIntoCalls(std::vector<fetch::Row> rows) {
  std::uint64_t bytes = 0;
  for (const fetch::Row& row : rows) bytes += row.memory.size();
  // The fields of a sample go into one call, because the owner reads its pieces once for each call.
  if (rows.size() > limits::kPeerRowsMax || bytes > limits::kPeerCallBytesMax) {
    std::ranges::stable_sort(rows, {}, &fetch::Row::sample);
  }
  std::vector<CallRows> calls;
  for (const fetch::Row& row : rows) {
    // A row that is longer than a call may be gets a call of its own.
    if (calls.empty() || !Fits(calls.back(), row.memory.size())) calls.emplace_back();
    calls.back().rows.push_back(row);
    calls.back().bytes += row.memory.size();
  }
  return calls;
}

// Returns what was parsed from an answer of this node. An error names the node, because the parsers
// do not know who has sent the message.
template <typename T>
Result<T> FromNode(const PeerLink& link, Result<T> parsed) {
  return parsed.has_value() ? std::move(parsed)
                            : parsed.error().WithContext("node " + link.address());
}

// Returns whether addresses that are not on loopback are allowed: if connections are encrypted, or
// may be in plaintext there.
bool MayBeAnywhere(const GrpcPeersOptions& options) {
  return options.allow_plaintext || !options.certificates.empty();
}

// An empty address is a place of the job that no node has yet.
Status CheckAddress(NodeRank node, const std::string& address, bool allow_all) {
  if (address.empty()) return {};
  const Status is_good = CheckPeerAddress(address, allow_all);
  if (is_good.has_value()) return {};
  return is_good.error().WithContext(fmt::format("node {}", node.value()));
}

// A call of Ping, which needs neither Hello nor room.
class PingCall final : public PeerCall {
 public:
  PingCall(PeerLink& link, io::Clock& clock, std::int64_t deadline_ns, v1::PingRequest request,
           GrpcPeers::Pinged done)
      : PeerCall(/*bytes=*/0, deadline_ns),
        link_(link),
        clock_(clock),
        done_(std::move(done)),
        request_(std::move(request)) {}

  void Begin(const std::shared_ptr<grpc::Channel>& channel) override {
    stub_ = v1::Peer::NewStub(channel);
    context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
    stub_->async()->Ping(&context_, &request_, &reply_, [this](const grpc::Status& status) {
      if (status.ok()) {
        done_(NodeReport{.capacity_bytes = reply_.capacity_bytes(),
                         .used_bytes = reply_.used_bytes(),
                         .gfs_bytes = reply_.gfs_bytes(),
                         .gfs_opens = reply_.gfs_opens(),
                         .samples = reply_.samples(),
                         .other_samples = reply_.other_samples(),
                         .waited_samples = reply_.waited_samples(),
                         .gfs_call_us = reply_.gfs_call_us(),
                         .is_yielding = reply_.is_yielding(),
                         .is_joining = reply_.is_joining(),
                         .has_finished = reply_.has_finished()});
      } else {
        // The deadline has passed, or there is no connection. The caller decides what that means.
        done_(FromGrpcStatus(status, link_.address()));
      }
      link_.Ended(*this);  // destroys this object
    });
  }
  void Fail(const Error& error) override { done_(error); }
  void Cancel() override { context_.TryCancel(); }

 private:
  PeerLink& link_;
  io::Clock& clock_;
  const GrpcPeers::Pinged done_;
  std::unique_ptr<v1::Peer::Stub> stub_;
  grpc::ClientContext context_;
  const v1::PingRequest request_;
  v1::PingReply reply_;
};

}  // namespace

Result<std::unique_ptr<GrpcPeers>> GrpcPeers::Create(const GrpcPeersOptions& options,
                                                     io::Clock& clock) {
  // All at once, so that a wrong table is found at the start and not in the middle of an epoch.
  for (const auto& [node, address] : options.addresses) {
    FOREBAY_TRY(CheckAddress(node, address, MayBeAnywhere(options)));
  }
  KeepMessageMemory();
  return std::unique_ptr<GrpcPeers>(new GrpcPeers(options, clock));
}

GrpcPeers::GrpcPeers(const GrpcPeersOptions& options, io::Clock& clock)
    : own_(options.identity),
      identity_(DigestOf(options.identity)),
      allow_all_(MayBeAnywhere(options)),
      clock_(clock),
      carrier_(options.carrier),
      self_(options.self),
      channels_(options.channels_max, clock) {
  const auto certificates = std::make_shared<const NodeCertificates>(options.certificates);
  for (const auto& [node, address] : options.addresses) {
    links_[node] = std::make_unique<PeerLink>(own_, address, clock, certificates, &channels_);
  }
}

// A node that has joined may have a link of its own rank, which leads to the node that was in its
// place before.
std::size_t GrpcPeers::node_count() const {
  return links_.size() + (links_.contains(self_) ? 0 : 1);
}

// A call looks at all links to bound their channels, so all calls end before the first link does.
GrpcPeers::~GrpcPeers() { Stop(); }

void GrpcPeers::Watch(const LinkWatchParts& parts) {
  std::vector<WatchedNode> nodes;
  for (const auto& [rank, link] : links_) nodes.push_back({.rank = rank, .link = link.get()});
  watch_ = std::make_unique<LinkWatch>(parts, nodes);
  watch_thread_ = std::jthread([this](const std::stop_token& stop) { watch_->Run(stop); });
}

// The watch ends first, because it looks at the links and ends their calls.
void GrpcPeers::Stop() {
  is_stopping_ = true;
  if (watch_thread_.joinable()) {
    watch_thread_.request_stop();
    watch_thread_.join();
  }
  for (const auto& [node, link] : links_) link->Stop();
}

Result<PeerLink*> GrpcPeers::LinkTo(NodeRank node) const {
  // The table of links does not change, so no mutex is needed.
  const auto found = links_.find(node);
  if (found != links_.end()) return found->second.get();
  return Error(ErrorCode::kUnavailable,
               fmt::format("node {} has no address, so it cannot be asked", node.value()));
}

Result<stage::SuppliedExtent> GrpcPeers::Read(const stage::ExtentRequest& request,
                                              const stage::AllocateImage& allocate,
                                              io::IoQueue&) {
  FOREBAY_ASSIGN(PeerLink* const link, LinkTo(request.node));
  // The caller's request has no deadline, so the transport sets one: a node that does not answer
  // must not block a reader thread for ever.
  const std::int64_t deadline_ns = clock_.NowNs() + limits::kPeerExtentDeadlineMs * 1'000'000;
  const ExtentAsked asked{.request = {.identity = identity_,
                                      .dataset = request.dataset.hash(),
                                      .catalog_fingerprint = request.catalog.fingerprint(),
                                      .rebuilds = request.dataset.rebuilds()},
                          .extent = request.extent};
  auto call = std::make_shared<ExtentCall>(*link, clock_, asked, deadline_ns);
  link->Start(call);
  // A node that is too busy has room again soon, so it is asked again until the deadline.
  BusyRetry retry;
  for (;;) {
    Result<stage::SuppliedExtent> supplied = call->Await(allocate);
    if (supplied.has_value()) return supplied;
    const std::optional<std::int64_t> again_ns =
        retry.AgainNs(supplied.error(), clock_.NowNs(), deadline_ns, call->was_interrupted());
    if (!again_ns) return retry.Outcome(supplied.error());
    call = std::make_shared<ExtentCall>(*link, clock_, asked, deadline_ns);
    link->StartLater(call, *again_ns);
  }
}

void GrpcPeers::ReportWrong(NodeRank node) {
  // A node without a link has supplied nothing.
  if (const Result<PeerLink*> link = LinkTo(node); link.has_value()) (*link)->CountWrong();
}

// Nothing is repeated here: a node that is too busy answers as if it did not have the part yet, and
// the caller asks for that again anyway.
Result<stage::PartAnswer> GrpcPeers::ReadPart(const stage::PartRequest& request,
                                              catalog::TableSpool& part) {
  FOREBAY_ASSIGN(PeerLink* const link, LinkTo(request.node));
  const auto call = std::make_shared<PartCall>(
      *link, clock_,
      PartAsked{.request = {.identity = identity_,
                            .dataset = request.dataset.hash(),
                            .catalog_fingerprint = 0},
                .object = request.object,
                .object_hash = catalog::HashOf(request.planned)},
      clock_.NowNs() + limits::kPeerPartDeadlineMs * 1'000'000);
  link->Start(call);
  return call->Await(part);
}

void GrpcPeers::Read(std::shared_ptr<const fetch::RowRequest> request,
                     fetch::RowSource::Done done) {
  const Result<PeerLink*> link = LinkTo(request->node);
  if (!link.has_value()) return done(link.error());
  // A call asks for one row at least (ParseRowsAsked).
  if (request->rows.empty()) return done(Status());
  std::vector<CallRows> calls = CutIntoCalls(request->rows);
  const auto all = std::make_shared<RequestCalls>(request, calls.size(), std::move(done));
  const PeerRequest head{.identity = identity_,
                         .dataset = request->dataset->hash(),
                         .catalog_fingerprint = request->dataset->catalog()->fingerprint(),
                         .rebuilds = request->dataset->rebuilds()};
  // Requests for rows name the slow nodes. This takes no further message, and reaches the nodes
  // that may wait for the same slow ones (LinkWatch).
  const std::vector<NodeRank> slow = watch_ ? watch_->SlowNodes() : std::vector<NodeRank>();
  // The link lets as many begin as there is room for; the others wait in this order.
  for (CallRows& call : calls) {
    (*link)->Start(std::make_shared<RowsCall>(
        **link, clock_,
        RowsWanted{.asked = {.request = head,
                             .rows = std::move(call.rows),
                             .need = request->reader.need,
                             .place = request->reader.place,
                             .from = self_,
                             .slow_nodes = slow},
                   .bytes = call.bytes,
                   .deadline_ns = request->deadline_ns,
                   .unwanted = request->reader.unwanted,
                   .done = [all](const Status& status) { all->Ended(status); },
                   .carrier = {.carrier = call.bytes >= kCarriedBytesMin ? carrier_ : nullptr,
                               .node = request->node}}));
  }
}

// Extents may be read before the catalog is complete. Then the fingerprint is 0, and the other node
// does not compare it (LocalFirstReads).
void GrpcPeers::Keep(stage::KeepRequest request, Kept kept) {
  const Result<PeerLink*> link = LinkTo(request.node);
  if (!link.has_value()) return kept(link.error());
  const std::shared_ptr<const catalog::Catalog> catalog = request.dataset.catalog();
  const FirstReadsGiven given{
      .request = {.identity = identity_,
                  .dataset = request.dataset.hash(),
                  .catalog_fingerprint = catalog ? catalog->fingerprint() : 0,
                  .rebuilds = request.dataset.rebuilds()},
      .from = request.from,
      .reads = std::move(request.reads)};
  (*link)->Start(std::make_shared<UnaryCall>(
      **link, clock_,
      UnaryRequest{.method = "FirstReads",
                   .message = WriteRequest(given),
                   .deadline_ns = request.deadline_ns},
      [link = *link, count = given.reads.size(),
       kept = std::move(kept)](const Result<grpc::ByteBuffer>& reply) {
        if (!reply.has_value()) return kept(reply.error());
        kept(FromNode(*link, ParseFirstReadsReply(*reply, count)));
      }));
}

// A node that is too busy is not asked again, because SharedStats asks the next node.
Result<std::vector<io::FileInfo>> GrpcPeers::Stat(const stage::StatRequest& request) {
  FOREBAY_ASSIGN(PeerLink* const link, LinkTo(request.node));
  const std::uint64_t dataset = request.dataset.hash();
  // Shared, because the callback may still be in set_value when get returns.
  const auto told = std::make_shared<std::promise<Result<grpc::ByteBuffer>>>();
  link->Start(std::make_shared<UnaryCall>(
      *link, clock_,
      UnaryRequest{
          .method = "ObjectStats",
          .message = WriteStatsRequest(
              {.identity = identity_, .dataset = dataset, .catalog_fingerprint = 0}, request.paths),
          .deadline_ns = clock_.NowNs() + limits::kPeerStatDeadlineMs * 1'000'000},
      [told](const Result<grpc::ByteBuffer>& reply) { told->set_value(reply); }));
  FOREBAY_ASSIGN(const grpc::ByteBuffer reply, told->get_future().get());
  return FromNode(*link, ParseStatsReply(reply, stage::BatchKey(dataset, request.paths),
                                         request.paths.size()));
}

void GrpcPeers::Ping(NodeRank node, std::int64_t deadline_ns, Pinged done,
                     std::optional<bool> has_finished) {
  // The end of a ping to one node may begin that to the next one, whose link is not stopped yet.
  if (is_stopping_) return done(Error(ErrorCode::kCancelled, "this node stops"));
  const Result<PeerLink*> link = LinkTo(node);
  if (!link.has_value()) return done(link.error());
  // A ping without a sender only asks whether the node answers.
  v1::PingRequest request;
  if (has_finished) {
    request.mutable_sender()->set_identity(identity_);
    request.mutable_sender()->set_node(self_.value());
    request.mutable_sender()->set_has_finished(*has_finished);
  }
  (*link)->StartAtOnce(std::make_shared<PingCall>(**link, clock_, deadline_ns, std::move(request),
                                                  std::move(done)));
}

void GrpcPeers::Leave(NodeRank to, NodeRank node, std::int64_t time_ms, std::int64_t deadline_ns,
                      Told told) {
  const Result<PeerLink*> link = LinkTo(to);
  if (!link.has_value()) return told(link.error());
  const LeaveAsked asked{.identity = identity_, .node = node, .time_ms = time_ms};
  (*link)->StartAtOnce(std::make_shared<UnaryCall>(
      **link, clock_,
      UnaryRequest{
          .method = "Leave", .message = WriteRequest(asked), .deadline_ns = deadline_ns},
      [link = *link, told = std::move(told)](const Result<grpc::ByteBuffer>& reply) {
        if (!reply.has_value()) return told(reply.error());
        told(FromNode(*link, ParseLeaveReply(*reply)));
      }));
}

void GrpcPeers::Join(NodeRank to, JoinAsked asked, std::int64_t deadline_ns, Joined joined) {
  const Result<PeerLink*> link = LinkTo(to);
  if (!link.has_value()) return joined(link.error());
  asked.node = own_;
  (*link)->StartAtOnce(std::make_shared<UnaryCall>(
      **link, clock_,
      UnaryRequest{.method = "Join", .message = WriteRequest(asked), .deadline_ns = deadline_ns},
      [link = *link, joined = std::move(joined)](const Result<grpc::ByteBuffer>& reply) {
        if (!reply.has_value()) return joined(reply.error());
        joined(FromNode(*link, ParseJoinReply(*reply)));
      }));
}

void GrpcPeers::Probe(NodeRank to, std::optional<NodeRank> target, const probe::Gossip& gossip,
                      std::int64_t deadline_ns, probe::ProbeTransport::Done done) {
  const Result<PeerLink*> link = LinkTo(to);
  if (!link.has_value()) return done(link.error());
  const ProbeAsked asked{.identity = identity_, .from = self_, .target = target, .gossip = gossip};
  (*link)->StartAtOnce(std::make_shared<UnaryCall>(
      **link, clock_,
      UnaryRequest{
          .method = "Probe", .message = WriteRequest(asked), .deadline_ns = deadline_ns},
      [node_count = node_count(),
       done = std::move(done)](const Result<grpc::ByteBuffer>& reply) {
        if (!reply.has_value()) return done(reply.error());
        done(ParseProbeReply(*reply, node_count));
      }));
}

void GrpcPeers::Borrow(NodeRank node, const stage::ShareAsk& ask, std::int64_t deadline_ns,
                       stage::ShareSource::Answered answered) {
  const Result<PeerLink*> link = LinkTo(node);
  if (!link.has_value()) return answered(link.error());
  const BorrowAsked asked{.identity = identity_, .from = self_, .ask = ask};
  (*link)->StartAtOnce(std::make_shared<UnaryCall>(
      **link, clock_,
      UnaryRequest{
          .method = "Borrow", .message = WriteRequest(asked), .deadline_ns = deadline_ns},
      [link = *link, answered = std::move(answered)](const Result<grpc::ByteBuffer>& reply) {
        if (!reply.has_value()) return answered(reply.error());
        answered(FromNode(*link, ParseBorrowReply(*reply)));
      }));
}

void GrpcPeers::GiveUp(NodeRank node) {
  if (const Result<PeerLink*> link = LinkTo(node); link.has_value()) (*link)->GiveUp();
}

Status GrpcPeers::Redirect(NodeRank node, const std::string& address) {
  FOREBAY_ASSIGN(PeerLink* const link, LinkTo(node));
  FOREBAY_TRY(CheckAddress(node, address, allow_all_));
  // In this order, so that what calls to the old address still find is forgotten, too.
  if (link->Redirect(address) && watch_) watch_->Forget(node);
  return {};
}

LinkFigures GrpcPeers::figures(NodeRank node) const { return links_.at(node)->figures(); }

}  // namespace forebay::peer
