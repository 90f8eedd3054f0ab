// Each attempt begins with the list of places, because another daemon may have joined meanwhile.
#include "server/daemon/place_search.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"
#include "server/io/log.h"
#include "server/peer/node_report.h"
#include "server/rendezvous/node_file.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kAnswerNs = limits::kJoinCallMs * 1'000'000;
constexpr std::int64_t kTryAgainMs = 1'000;
// Nodes that are told which place is taken until one of them answers.
constexpr std::size_t kToldMax = 4;

using rendezvous::NodeEntry;

// A TLS handshake with another secret or job id fails without saying so.
Error WithRemedy(const Error& error) {
  if (error.code() != ErrorCode::kUnavailable) return error;
  return Error(error.code(),
               fmt::format("{}; the address must be that of a node that runs, and peer.secret and "
                           "daemon.job_id must be those of its job",
                           error.message()));
}

}  // namespace

std::vector<std::byte> EntryFile(const NodeEntry& node) {
  return rendezvous::Encode({.kind = rendezvous::NodeFileKind::kAnswer, .nodes = {node}});
}

// The first failure is logged, because the user may wait for a minute; the last one is returned.
Result<TakenPlace> PlaceSearch::Run(std::int64_t deadline_ns) {
  bool has_said = false;
  for (;;) {
    Result<TakenPlace> taken = TryOnce(deadline_ns);
    if (taken.has_value() || parts_.clock.NowNs() >= deadline_ns) return taken;
    if (!std::exchange(has_said, true)) {
      log::Info("this node cannot join the job yet, and tries again: {}",
                taken.error().ToString());
    }
    if (!parts_.pause(kTryAgainMs)) {
      return Error(ErrorCode::kCancelled,
                   "the daemon was asked to stop while it waited for a free place of the job");
    }
  }
}

// Tries the free places one after the other. A place may be refused because another node was
// quicker, or because the tiers of this node are too small for it.
Result<TakenPlace> PlaceSearch::TryOnce(std::int64_t deadline_ns) {
  FOREBAY_ASSIGN(const Places places, ReadPlaces(parts_.address));
  FOREBAY_ASSIGN(const std::vector<NodeRank> candidates, Candidates(places));
  Status outcome;
  for (const NodeRank rank : candidates) {
    // Each of them may wait for nodes that do not answer.
    if (!outcome.has_value() && parts_.clock.NowNs() >= deadline_ns) break;
    const NodeEntry& place = places.nodes[rank.value()];
    outcome = rendezvous::CheckRoom(place, parts_.own);
    if (!outcome.has_value()) continue;
    const NodeEntry taken = rendezvous::TakePlace(place, parts_.own);
    const Result<std::string> decided = Tell(places, taken);
    if (!decided.has_value()) {
      outcome = decided.error();
      continue;
    }
    // Others that have joined since the list was read are known there, and are told of this one.
    FOREBAY_ASSIGN(Places now, ReadPlaces(*decided));
    if (now.nodes.size() != places.nodes.size() || now.nodes[rank.value()] != taken) {
      return Error(ErrorCode::kUnavailable,
                   fmt::format("node {} has given the place away again", *decided));
    }
    return TakenPlace{.rank = rank,
                      .nodes = std::move(now.nodes),
                      .address_before = place.is_free() ? "" : place.address.Text()};
  }
  return outcome.error();
}

Result<std::vector<NodeEntry>> PlaceSearch::List(const std::string& address) {
  FOREBAY_ASSIGN(Places places, ReadPlaces(address));
  return std::move(places.nodes);
}

// The answers are pages, because the list of a large job does not fit into a message.
Result<PlaceSearch::Places> PlaceSearch::ReadPlaces(const std::string& address) {
  const NodeRank asked_node(0);  // the only one that these peers have
  FOREBAY_ASSIGN(const auto peers, PeersAt({{asked_node, address}}, /*list_digest=*/0));
  Places places;
  std::uint32_t node_count = 0;
  for (;;) {
    const auto first = static_cast<std::uint32_t>(places.nodes.size());
    const Result<peer::JoinAnswer> asked =
        Ask(*peers, asked_node, {.entry = EntryFile(parts_.own), .first = first});
    if (!asked.has_value()) return WithRemedy(asked.error());
    const peer::JoinAnswer& answer = *asked;
    FOREBAY_ASSIGN(rendezvous::NodeFile page, rendezvous::Decode(answer.nodes));
    if (places.nodes.empty()) node_count = answer.node_count;
    const std::size_t end = places.nodes.size() + page.nodes.size();
    bool follows = !page.nodes.empty() && answer.node_count == node_count && end <= node_count;
    for (const NodeRank rank : answer.free) {
      follows = follows && rank.value() >= places.nodes.size() && rank.value() < end;
    }
    for (NodeEntry& node : page.nodes) {
      follows = follows && node.rank.value() == places.nodes.size();
      places.nodes.push_back(std::move(node));
    }
    if (!follows) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("node {} sends a list of places that cannot be", address));
    }
    places.free.insert(places.free.end(), answer.free.begin(), answer.free.end());
    if (places.nodes.size() == node_count) break;
  }
  FOREBAY_TRY(rendezvous::CheckNodeList(places.nodes,
                                        static_cast<std::uint32_t>(places.nodes.size())));
  return places;
}

// The free places: first the one that this node had before, then the others in an order that
// differs between daemons, so that two that join at the same time seldom try the same one first.
Result<std::vector<NodeRank>> PlaceSearch::Candidates(const Places& places) const {
  std::vector<NodeRank> free = places.free;
  if (parts_.wanted) {
    const std::size_t wanted = parts_.wanted->value();
    if (wanted >= places.nodes.size()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the job has {} places, so there is none of rank {} (--node-rank)",
                               places.nodes.size(), wanted));
    }
    std::erase_if(free, [&](NodeRank rank) { return rank != *parts_.wanted; });
    if (free.empty()) {
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("{} is in the place of rank {} (--node-rank), and does not count as "
                               "dead",
                               places.nodes[wanted].Text(), wanted));
    }
  }
  if (free.empty()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("none of the {} places of the job is free: a node can take the place "
                             "of one that is lost or has left (forebay drain --node), or one that "
                             "the job was started with (nodes.free_places)",
                             places.nodes.size()));
  }
  std::ranges::sort(free, {}, [&](NodeRank rank) {
    const bool is_own = places.nodes[rank.value()].identity == parts_.own.identity;
    return std::pair(!is_own, Mix64(parts_.own.nonce ^ rank.value()));
  });
  return free;
}

// The first node of the list that answers decides, because all that join ask it first. Returns its
// address.
Result<std::string> PlaceSearch::Tell(const Places& places, const NodeEntry& taken) {
  std::map<NodeRank, std::string> addresses;
  for (const NodeEntry& node : places.nodes) {
    const bool is_free = std::ranges::count(places.free, node.rank) > 0;
    if (is_free || node.rank == taken.rank) continue;
    addresses[node.rank] = node.address.Text();
    if (addresses.size() == kToldMax) break;
  }
  if (addresses.empty()) {
    return Error(ErrorCode::kFailedPrecondition, "no node of the job is left to join");
  }
  FOREBAY_ASSIGN(const auto peers,
                 PeersAt(addresses, rendezvous::NodeListDigest(places.nodes)));
  Error last(ErrorCode::kUnavailable, "");
  for (const auto& [rank, address] : addresses) {
    const Result<peer::JoinAnswer> answer =
        Ask(*peers, rank, {.entry = EntryFile(taken), .takes_place = true});
    if (answer.has_value()) return address;
    last = answer.error();
    if (last.code() == ErrorCode::kFailedPrecondition) break;  // it has decided
  }
  return last;
}

// Waits for one answer. A node that does not answer holds the daemon up for kJoinCallMs, so this
// looks before each call whether the daemon is to stop.
Result<peer::JoinAnswer> PlaceSearch::Ask(peer::GrpcPeers& peers, NodeRank to,
                                          peer::JoinAsked asked) {
  if (!parts_.pause(0)) return Error(ErrorCode::kCancelled, "the daemon was asked to stop");
  // Shared, because the callback may still be in set_value when get returns.
  const auto answered = std::make_shared<std::promise<Result<peer::JoinAnswer>>>();
  peers.Join(to, std::move(asked), parts_.clock.NowNs() + kAnswerNs,
             [answered](const Result<peer::JoinAnswer>& answer) { answered->set_value(answer); });
  return answered->get_future().get();
}

// Connections for these calls only: the daemon makes those that last when it knows its rank. Rows
// are not asked for by them, so their `self` is any rank.
Result<std::unique_ptr<peer::GrpcPeers>> PlaceSearch::PeersAt(
    std::map<NodeRank, std::string> addresses, std::uint64_t list_digest) const {
  peer::PeerIdentity identity = parts_.identity;
  identity.node_list_digest = list_digest;
  return peer::GrpcPeers::Create({.identity = identity,
                                  .addresses = std::move(addresses),
                                  .allow_plaintext = parts_.allow_plaintext,
                                  .certificates = parts_.certificates,
                                  .self = NodeRank(limits::kNodeCountMax - 1)},
                                 parts_.clock);
}

}  // namespace forebay::daemon
