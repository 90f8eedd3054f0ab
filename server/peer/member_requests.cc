// The sender is another node, and may be one that lies: its numbers are checked before anything is
// counted or indexed by them. A message is refused as a whole, because nothing of a wrong one can
// be relied on. To refuse it costs little: MemberAnswers parses a request before it changes
// anything, and the node that asks goes on as after a call without an answer (NodeProber,
// ShareBorrower, Departure, Arrival), or reports the error.
//
// The digest of the identity is only read here. MemberAnswers compares it with that of this launch.
#include "server/peer/member_requests.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/peer/proto_buffer.h"

namespace forebay::peer {
namespace {

// A node file with one entry takes some hundred bytes.
constexpr std::size_t kJoinEntryBytesMax = 64 * limits::kKiB;

std::vector<std::byte> BytesOf(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Adds what is said about nodes to a message of either direction: ProbeRequest and ProbeReply have
// these fields with the same names.
template <typename Message>
void SetGossip(const probe::Gossip& gossip, Message& message) {
  message.set_incarnation(gossip.incarnation);
  for (const probe::News& news : gossip.news) {
    v1::NodeNews& written = *message.add_news();
    written.set_node(news.node.value());
    written.set_state(static_cast<std::uint32_t>(news.state));
    written.set_incarnation(news.incarnation);
  }
}

// Ranks become indexes of the table of nodes in Prober, and states values of an enumeration, so
// neither may be beyond its range. News that are lost with a message do little harm: each node
// sends a piece of news with several messages.
template <typename Message>
Result<probe::Gossip> GossipOf(const Message& message, std::size_t node_count) {
  probe::Gossip gossip{.incarnation = message.incarnation()};
  std::uint64_t highest = message.incarnation();
  bool is_good = static_cast<std::size_t>(message.news_size()) <= limits::kGossipNewsMax;
  for (const v1::NodeNews& news : message.news()) {
    highest = std::max<std::uint64_t>(highest, news.incarnation());
    is_good = is_good && news.node() < node_count &&
              news.state() <= static_cast<std::uint32_t>(probe::NodeState::kDead);
    // A list that is too long ends here before its first entry, so it takes no further memory.
    if (!is_good) break;
    gossip.news.push_back({.node = NodeRank(news.node()),
                           .state = static_cast<probe::NodeState>(news.state()),
                           .incarnation = news.incarnation()});
  }
  // A node goes beyond the incarnation that it hears of itself, so the number must not wrap.
  if (is_good && highest <= limits::kIncarnationMax) return gossip;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("a probe with {} pieces of news (at most {}), of which one has a node, "
                           "a state or an incarnation that cannot be",
                           message.news_size(), limits::kGossipNewsMax));
}

// BorrowRequest and BorrowReply have these fields with the same names: the rates that a node asks
// for, and those that the other one lends.
void SetRates(const stage::CapRates& rates, auto& message) {
  message.set_bytes_per_s(rates[static_cast<std::size_t>(stage::Cap::kBytes)]);
  message.set_opens_per_s(rates[static_cast<std::size_t>(stage::Cap::kOpens)]);
}

Result<stage::CapRates> RatesOf(const auto& message) {
  stage::CapRates rates = {};
  rates[static_cast<std::size_t>(stage::Cap::kBytes)] = message.bytes_per_s();
  rates[static_cast<std::size_t>(stage::Cap::kOpens)] = message.opens_per_s();
  // A rate that is no number would make the sums of all shares no numbers, too. A negative one in
  // an answer would lower the rate of the node that has asked. How large a rate may be is left to
  // CapShare, which lends no more than it has, and takes no more than a node can lend.
  const auto is_rate = [](double rate) { return std::isfinite(rate) && rate >= 0; };
  if (std::ranges::all_of(rates, is_rate)) return rates;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("rates of {} bytes/s and {} opens/s", message.bytes_per_s(),
                           message.opens_per_s()));
}

}  // namespace

grpc::ByteBuffer WriteRequest(const ProbeAsked& asked) {
  v1::ProbeRequest message;
  message.set_identity(asked.identity);
  message.set_from(asked.from.value());
  if (asked.target) message.set_target(asked.target->value());
  SetGossip(asked.gossip, message);
  return ToBuffer(message);
}

// The node that asks counts a probe that is refused as one that was missed, as it does with every
// error (NodeProber).
Result<ProbeAsked> ParseProbeAsked(const grpc::ByteBuffer& bytes, std::size_t node_count) {
  v1::ProbeRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  // Without a target the node that is asked is meant.
  if (message.from() >= node_count || (message.has_target() && message.target() >= node_count)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a probe of node {} for node {}, in a job of {} nodes",
                             message.target(), message.from(), node_count));
  }
  ProbeAsked asked{.identity = message.identity(), .from = NodeRank(message.from())};
  if (message.has_target()) asked.target = NodeRank(message.target());
  FOREBAY_ASSIGN(asked.gossip, GossipOf(message, node_count));
  return asked;
}

// News go both ways, so a probe carries them at no cost of further messages. An answer has neither
// rank nor identity, because it belongs to a call, and the request of that call had both.
grpc::ByteBuffer WriteProbeReply(const probe::ProbeTransport::Answer& answer) {
  v1::ProbeReply message;
  message.set_has_answered(answer.has_answered);
  SetGossip(answer.gossip, message);
  return ToBuffer(message);
}

// An answer with wrong news does not count, so its node has missed the probe, as if no answer had
// come.
Result<probe::ProbeTransport::Answer> ParseProbeReply(const grpc::ByteBuffer& bytes,
                                                      std::size_t node_count) {
  v1::ProbeReply message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  FOREBAY_ASSIGN(probe::Gossip gossip, GossipOf(message, node_count));
  return probe::ProbeTransport::Answer{.gossip = std::move(gossip),
                                       .has_answered = message.has_answered()};
}

// A request asks for rates, for a lease, or for requests in flight. Only the lease is an optional
// field, because rank 0 is a node, and 0 of the others means that nothing is asked for. If the
// request or its answer is lost, the node asks again about a second later (ShareBorrower). What was
// lent in vain stays unused until that loan ends, so the caps hold.
grpc::ByteBuffer WriteRequest(const BorrowAsked& asked) {
  v1::BorrowRequest message;
  message.set_identity(asked.identity);
  message.set_from(asked.from.value());
  SetRates(asked.ask.wanted, message);
  if (asked.ask.lease) message.set_lease(asked.ask.lease->value());
  message.set_requests(asked.ask.requests.wanted);
  message.set_held_requests(asked.ask.requests.held);
  message.set_held_as_heir(asked.ask.requests.held_as_heir);
  return ToBuffer(message);
}

Result<BorrowAsked> ParseBorrowAsked(const grpc::ByteBuffer& bytes, std::size_t node_count) {
  v1::BorrowRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  // A message without a lease reads as rank 0, which every job has.
  if (message.from() >= node_count || message.lease() >= node_count) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("node {} wants to borrow, or the share of node {}, in a job of {} "
                             "nodes",
                             message.from(), message.lease(), node_count));
  }
  BorrowAsked asked{.identity = message.identity(), .from = NodeRank(message.from())};
  FOREBAY_ASSIGN(asked.ask.wanted, RatesOf(message));
  if (message.has_lease()) asked.ask.lease = NodeRank(message.lease());
  // Any numbers are possible. RequestShare lends no more than it has, and believes no more than it
  // can have lent.
  asked.ask.requests = {.wanted = message.requests(),
                        .held = message.held_requests(),
                        .held_as_heir = message.held_as_heir()};
  return asked;
}

grpc::ByteBuffer WriteBorrowReply(const stage::ShareAnswer& answer) {
  v1::BorrowReply message;
  SetRates(answer.lent, message);
  message.set_is_leased(answer.is_leased);
  message.set_requests(answer.requests);
  return ToBuffer(message);
}

// As for the request, the number of requests needs no check: the node takes no more of them than it
// needs (RequestShare::Borrowed).
Result<stage::ShareAnswer> ParseBorrowReply(const grpc::ByteBuffer& bytes) {
  v1::BorrowReply message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  stage::ShareAnswer answer{.is_leased = message.is_leased(), .requests = message.requests()};
  FOREBAY_ASSIGN(answer.lent, RatesOf(message));
  return answer;
}

// The node that leaves repeats this call to each other node until that has taken over what it has
// room for (Departure). So a call that is lost delays the departure, and nothing else.
grpc::ByteBuffer WriteRequest(const LeaveAsked& asked) {
  v1::LeaveRequest message;
  message.set_identity(asked.identity);
  message.set_node(asked.node.value());
  message.set_time_ms(static_cast<std::uint32_t>(asked.time_ms));
  return ToBuffer(message);
}

Result<LeaveAsked> ParseLeaveAsked(const grpc::ByteBuffer& bytes, std::size_t node_count) {
  v1::LeaveRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  // For so long the others take the node for one that leaves, unless it repeats the call. Without a
  // limit, a single message could make that last for the whole job.
  const bool is_time = message.time_ms() >= 1 && message.time_ms() <= limits::kLeaveMsMax;
  if (message.node() >= node_count || !is_time) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("node {} leaves within {} ms, in a job of {} nodes, where 1 to {} ms "
                             "are allowed",
                             message.node(), message.time_ms(), node_count, limits::kLeaveMsMax));
  }
  return LeaveAsked{.identity = message.identity(),
                    .node = NodeRank(message.node()),
                    .time_ms = message.time_ms()};
}

grpc::ByteBuffer WriteLeaveReply(const LeaveAnswer& answer) {
  v1::LeaveReply message;
  message.set_has_taken_over(answer.has_taken_over);
  message.set_has_left_out(answer.has_left_out);
  return ToBuffer(message);
}

Result<LeaveAnswer> ParseLeaveReply(const grpc::ByteBuffer& bytes) {
  v1::LeaveReply message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  return LeaveAnswer{.has_taken_over = message.has_taken_over(),
                     .has_left_out = message.has_left_out()};
}

// The message has the whole identity, and not only its digest: a node that joins does not know the
// list of nodes yet, so its digest would differ. It repeats the call to each node until that has
// taken it for the node in its place (Arrival), which changes nothing the second time.
grpc::ByteBuffer WriteRequest(const JoinAsked& asked) {
  v1::JoinRequest message;
  WriteHello(asked.node, *message.mutable_hello());
  message.set_node(asked.entry.data(), asked.entry.size());
  message.set_takes_place(asked.takes_place);
  message.set_first(asked.first);
  return ToBuffer(message);
}

Result<JoinAsked> ParseJoinAsked(const grpc::ByteBuffer& bytes) {
  v1::JoinRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  const v1::PeerHelloRequest& hello = message.hello();
  // Nothing is known yet of the node that joins, and what it says of itself goes into error
  // messages and the log. So these texts are bounded before anything else.
  if (hello.address().empty() || hello.address().size() > limits::kPeerAddressBytesMax ||
      hello.job_id().size() > limits::kJobIdBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a node joins with an address of {} bytes and a job's name of {}, "
                             "where 1 to {} and at most {} are allowed",
                             hello.address().size(), hello.job_id().size(),
                             limits::kPeerAddressBytesMax, limits::kJobIdBytesMax));
  }
  // What the entry says is checked by server/rendezvous, which knows node files.
  if (message.node().empty() || message.node().size() > kJoinEntryBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a node joins with an entry of {} bytes, where 1 to {} are allowed",
                             message.node().size(), kJoinEntryBytesMax));
  }
  // The number of nodes of this job is compared by Arrival, which has the list.
  if (message.first() >= limits::kNodeCountMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a node that joins asks for nodes from rank {} on, and no rank is "
                             "above {}",
                             message.first(), limits::kNodeCountMax - 1));
  }
  return JoinAsked{.node = ReadHello(hello),
                   .entry = BytesOf(message.node()),
                   .takes_place = message.takes_place(),
                   .first = message.first()};
}

// A long list of nodes takes several answers; each request says from which rank on.
grpc::ByteBuffer WriteJoinReply(const JoinAnswer& answer) {
  v1::JoinReply message;
  message.set_nodes(answer.nodes.data(), answer.nodes.size());
  message.set_node_count(answer.node_count);
  for (const NodeRank node : answer.free) message.add_free(node.value());
  return ToBuffer(message);
}

Result<JoinAnswer> ParseJoinReply(const grpc::ByteBuffer& bytes) {
  v1::JoinReply message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  const std::uint32_t count = message.node_count();
  // Without a count there is nothing, which is the answer to a node that takes a place.
  const bool is_list = count > 0 || !message.nodes().empty();
  if (count > limits::kNodeCountMax || (is_list && (count == 0 || message.nodes().empty()))) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("an answer with {} bytes of nodes, of a job of {} nodes (at most {})",
                             message.nodes().size(), count, limits::kNodeCountMax));
  }
  JoinAnswer answer{.nodes = BytesOf(message.nodes()), .node_count = count, .free = {}};
  // The order must rise, so that there are no more ranks than nodes, and none comes twice.
  for (const std::uint32_t node : message.free()) {
    if (node >= count || (!answer.free.empty() && node <= answer.free.back().value())) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the answer names free place {} of {}, or does not name them in "
                               "rising order",
                               node, count));
    }
    answer.free.push_back(NodeRank(node));
  }
  return answer;
}

}  // namespace forebay::peer
