// The requests by which the nodes of a job know of each other, and the answers: written by the node
// that asks, read by the other one, which checks them against the limits. MemberAnswers answers
// them. Those for data are in peer_requests.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/peer/node_report.h"
#include "server/probe/probe_transport.h"
#include "server/stage/gfs/cap_share.h"

namespace forebay::peer {

struct ProbeAsked {
  std::uint64_t identity = 0;       // DigestOf the identity of the node that asks
  NodeRank from = NodeRank(0);      // the node that asks
  std::optional<NodeRank> target = {};  // the node that is to be probed for it
  probe::Gossip gossip = {};
};

struct BorrowAsked {
  std::uint64_t identity = 0;   // as in ProbeAsked
  NodeRank from = NodeRank(0);  // the node that asks
  stage::ShareAsk ask = {};
};

struct LeaveAsked {
  std::uint64_t identity = 0;   // DigestOf the identity of the node that asks
  NodeRank node = NodeRank(0);  // the node that leaves
  std::int64_t time_ms = 0;     // LeaveRequest of peer.proto says what it means
};

grpc::ByteBuffer WriteRequest(const ProbeAsked& asked);
grpc::ByteBuffer WriteRequest(const BorrowAsked& asked);
grpc::ByteBuffer WriteRequest(const LeaveAsked& asked);
grpc::ByteBuffer WriteRequest(const JoinAsked& asked);

// kInvalidArgument: the message is no such request. All ranks are below `node_count`.
Result<ProbeAsked> ParseProbeAsked(const grpc::ByteBuffer& message, std::size_t node_count);
// Likewise, that of a lease, too; the rates are numbers, and not negative.
Result<BorrowAsked> ParseBorrowAsked(const grpc::ByteBuffer& message, std::size_t node_count);
// The rank is below `node_count`, and the time at most limits::kLeaveMsMax.
Result<LeaveAsked> ParseLeaveAsked(const grpc::ByteBuffer& message, std::size_t node_count);
// The identity is not compared yet; its texts and the entry have the lengths that they may have,
// and the first rank is below limits::kNodeCountMax.
Result<JoinAsked> ParseJoinAsked(const grpc::ByteBuffer& message);

// The answer to ProbeAsked. kInvalidArgument: the message is no answer.
grpc::ByteBuffer WriteProbeReply(const probe::ProbeTransport::Answer& answer);
Result<probe::ProbeTransport::Answer> ParseProbeReply(const grpc::ByteBuffer& message,
                                                      std::size_t node_count);

// The answer to BorrowAsked. kInvalidArgument: the message is no answer.
grpc::ByteBuffer WriteBorrowReply(const stage::ShareAnswer& answer);
Result<stage::ShareAnswer> ParseBorrowReply(const grpc::ByteBuffer& message);

// The answer to LeaveAsked.
grpc::ByteBuffer WriteLeaveReply(const LeaveAnswer& answer);
Result<LeaveAnswer> ParseLeaveReply(const grpc::ByteBuffer& message);

// The answer to JoinAsked. kInvalidArgument: the message is no answer.
grpc::ByteBuffer WriteJoinReply(const JoinAnswer& answer);
Result<JoinAnswer> ParseJoinReply(const grpc::ByteBuffer& message);

}  // namespace forebay::peer
