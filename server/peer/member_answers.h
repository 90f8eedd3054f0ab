// MemberAnswers: answers the short calls by which the nodes of a job know of each other: pings and
// probes, and what nodes say that borrow from the job's caps, leave the job, or join it. All are
// answered by the thread that calls, except probes on behalf of another node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/peer/member_requests.h"
#include "server/peer/node_report.h"
#include "server/peer/peer_identity.h"
#include "server/peer/unary_answer.h"
#include "server/probe/node_prober.h"
#include "server/stage/gfs/gfs_throttle.h"

namespace forebay::v1 {
class PingReply;
class PingRequest;
class PingRequest_Sender;
}  // namespace forebay::v1

namespace forebay::peer {

// The objects that answer these calls. All are borrowed.
struct MemberParts {
  std::function<NodeReport()> report = nullptr;  // for Ping; null: nothing is reported
  // Another node of the job says in its ping whether it has finished. Null: nobody wants to know.
  std::function<void(NodeRank node, bool has_finished)> note_finished = nullptr;
  // Takes the news of probes and answers them. Null: a probe is answered that this node does not
  // serve yet.
  probe::NodeProber* prober = nullptr;
  // Lends parts of this node's share of the job's caps. Null: nothing is lent.
  stage::GfsThrottle* throttle = nullptr;
  // Another node says that `node` leaves the job (LeaveRequest of peer.proto); `node` may be this
  // one. Returns whether this node has taken over what it has room for, and whether it has left
  // that node out. Null: nodes cannot leave.
  std::function<Result<LeaveAnswer>(NodeRank node, std::int64_t time_ms)> leave = nullptr;
  // Another node joins the job (JoinRequest of peer.proto). It has the same versions, job and
  // configuration as this node, and the same list of nodes if it takes a place; the rest of what it
  // says was not looked at. Null: nodes cannot join.
  std::function<Result<JoinAnswer>(const JoinAsked&)> join = nullptr;
};

// Thread-safe. Each call gives its answer, or returns the error that is the answer. Errors that all
// calls have: kInvalidArgument for a request that no node of this job would make,
// kFailedPrecondition for one of another launch, and kUnavailable where the part that would answer
// is null.
class MemberAnswers {
 public:
  // `identity` is this node's.
  MemberAnswers(PeerIdentity identity, MemberParts parts)
      : identity_(std::move(identity)), digest_(DigestOf(identity_)), parts_(std::move(parts)) {}

  Status Ping(const v1::PingRequest& request, v1::PingReply& reply) const;
  // Gives the answer of a node that is starting: it does not serve yet. So the others neither take
  // it for dead nor ask it for data.
  static Status ProbeBeforeServing(const grpc::ByteBuffer& request, UnaryAnswer& answer);
  Status Probe(const grpc::ByteBuffer& request, const std::shared_ptr<UnaryAnswer>& answer) const;
  Status Borrow(const grpc::ByteBuffer& request, UnaryAnswer& answer) const;
  Status Leave(const grpc::ByteBuffer& request, UnaryAnswer& answer) const;
  // Errors of CheckSameIdentity, and of MemberParts::join.
  Status Join(const grpc::ByteBuffer& request, UnaryAnswer& answer) const;

 private:
  // For calls that need no Hello.
  Status CheckLaunch(std::uint64_t identity) const;
  Status NoteFinished(const v1::PingRequest_Sender& sender) const;

  const PeerIdentity identity_;
  const std::uint64_t digest_;
  const MemberParts parts_;
};

}  // namespace forebay::peer
