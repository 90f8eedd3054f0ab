// A request names the digest of the identity that its sender was started with, or the identity
// itself (Join). So these calls need no Hello before them, and a node that was started again with
// other settings is refused at once.
#include "server/peer/member_answers.h"

#include <cstddef>

#include <fmt/format.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"

namespace forebay::peer {

// Daemons of an earlier launch may still run, at addresses that the nodes of this one have now.
Status MemberAnswers::CheckLaunch(std::uint64_t identity) const {
  if (identity == digest_) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("node {} belongs to another launch of the job", identity_.address));
}

// The rank becomes an index of a table of nodes, so it is checked here.
Status MemberAnswers::NoteFinished(const v1::PingRequest::Sender& sender) const {
  FOREBAY_TRY(CheckLaunch(sender.identity()));
  if (parts_.prober == nullptr || parts_.note_finished == nullptr) return {};
  const std::size_t node_count = parts_.prober->node_count();
  if (sender.node() >= node_count) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a ping comes from rank {} of {}", sender.node(), node_count));
  }
  parts_.note_finished(NodeRank(sender.node()), sender.has_finished());
  return {};
}

// A ping without a sender comes from a daemon that only wants to know whether this one answers.
Status MemberAnswers::Ping(const v1::PingRequest& request, v1::PingReply& reply) const {
  if (request.has_sender()) FOREBAY_TRY(NoteFinished(request.sender()));
  if (!parts_.report) return {};
  const NodeReport report = parts_.report();
  reply.set_capacity_bytes(report.capacity_bytes);
  reply.set_used_bytes(report.used_bytes);
  reply.set_gfs_bytes(report.gfs_bytes);
  reply.set_gfs_opens(report.gfs_opens);
  reply.set_samples(report.samples);
  reply.set_other_samples(report.other_samples);
  reply.set_waited_samples(report.waited_samples);
  reply.set_has_finished(report.has_finished);
  reply.set_gfs_call_us(report.gfs_call_us);
  reply.set_is_yielding(report.is_yielding);
  reply.set_is_joining(report.is_joining);
  return {};
}

Status MemberAnswers::ProbeBeforeServing(const grpc::ByteBuffer& request, UnaryAnswer& answer) {
  FOREBAY_TRY(ParseProbeAsked(request, limits::kNodeCountMax));
  answer.Answer(WriteProbeReply({}));
  return {};
}

Status MemberAnswers::Probe(const grpc::ByteBuffer& request,
                            const std::shared_ptr<UnaryAnswer>& answer) const {
  if (parts_.prober == nullptr) return ProbeBeforeServing(request, *answer);
  probe::NodeProber& prober = *parts_.prober;
  FOREBAY_ASSIGN(ProbeAsked asked, ParseProbeAsked(request, prober.node_count()));
  FOREBAY_TRY(CheckLaunch(asked.identity));
  if (!asked.target) {
    answer->Answer(WriteProbeReply(
        {.gossip = prober.Hear(asked.from, asked.gossip), .has_answered = true}));
    return {};
  }
  // The node that asks cannot reach the target itself. It waits for our answer, and this thread
  // does not.
  prober.ProbeFor(asked.from, asked.gossip, *asked.target,
                  [answer](const probe::ProbeTransport::Answer& heard) {
                    answer->Answer(WriteProbeReply(heard));
                  });
  return {};
}

// A job without caps has no throttle, and nobody borrows.
Status MemberAnswers::Borrow(const grpc::ByteBuffer& request, UnaryAnswer& answer) const {
  if (parts_.throttle == nullptr || parts_.prober == nullptr) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("node {} lends nothing", identity_.address));
  }
  FOREBAY_ASSIGN(const BorrowAsked asked, ParseBorrowAsked(request, parts_.prober->node_count()));
  FOREBAY_TRY(CheckLaunch(asked.identity));
  answer.Answer(WriteBorrowReply(parts_.throttle->Answer(asked.from, asked.ask)));
  return {};
}

// The daemon writes down that the node leaves before this returns, so that a daemon that is killed
// and started again still knows it.
Status MemberAnswers::Leave(const grpc::ByteBuffer& request, UnaryAnswer& answer) const {
  if (parts_.prober == nullptr || parts_.leave == nullptr) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("no node can leave the job of node {}", identity_.address));
  }
  FOREBAY_ASSIGN(const LeaveAsked asked, ParseLeaveAsked(request, parts_.prober->node_count()));
  FOREBAY_TRY(CheckLaunch(asked.identity));
  FOREBAY_ASSIGN(const LeaveAnswer ours, parts_.leave(asked.node, asked.time_ms));
  answer.Answer(WriteLeaveReply(ours));
  return {};
}

// The node that joins belongs to no launch yet, so identities are compared, as for Hello.
Status MemberAnswers::Join(const grpc::ByteBuffer& request, UnaryAnswer& answer) const {
  if (parts_.join == nullptr) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("no node can join the job of node {}", identity_.address));
  }
  FOREBAY_ASSIGN(const JoinAsked asked, ParseJoinAsked(request));
  PeerIdentity ours = identity_;
  // A node that only asks for the list does not know it yet.
  if (!asked.takes_place) ours.node_list_digest = asked.node.node_list_digest;
  FOREBAY_TRY(CheckSameIdentity(ours, asked.node));
  FOREBAY_ASSIGN(const JoinAnswer found, parts_.join(asked));
  answer.Answer(WriteJoinReply(found));
  return {};
}

}  // namespace forebay::peer
