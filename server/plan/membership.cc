// A table of flags beside the fixed list of nodes. The flags are atomics without any order between
// them, because each is a hint of its own and nothing else is published with it.
#include "server/plan/membership.h"

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::plan {
namespace {

std::unordered_map<NodeRank, std::size_t, IdHash> IndexesOf(std::span<const Node> nodes) {
  std::unordered_map<NodeRank, std::size_t, IdHash> indexes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    FOREBAY_CHECK(indexes.emplace(nodes[i].rank, i).second);
  }
  return indexes;
}

}  // namespace

Membership::Membership(NodeRank self, std::vector<Node> nodes)
    : nodes_(std::move(nodes)),
      owners_(nodes_),
      indexes_(IndexesOf(nodes_)),
      self_(IndexOf(self)),
      lives_(std::make_unique<std::atomic<bool>[]>(nodes_.size())),
      rests_until_ns_(std::make_unique<std::atomic<std::int64_t>[]>(nodes_.size())),
      leaves_(std::make_unique<std::atomic<bool>[]>(nodes_.size())) {
  // All nodes count as alive until one does not answer. A wrong guess costs one request.
  for (std::size_t i = 0; i < nodes_.size(); ++i) lives_[i] = true;
}

std::size_t Membership::IndexOf(NodeRank node) const {
  const auto found = indexes_.find(node);
  // A node that is not in the list is a mistake of the caller.
  FOREBAY_CHECK(found != indexes_.end());
  return found->second;
}

bool Membership::LivesAt(std::size_t index) const {
  return index == self_ || lives_[index].load(std::memory_order_relaxed);
}

bool Membership::LeavesAt(std::size_t index) const {
  return index != self_ && leaves_[index].load(std::memory_order_relaxed);
}

void Membership::SetLives(NodeRank node, bool lives) {
  lives_[IndexOf(node)].store(lives, std::memory_order_relaxed);
}

void Membership::Rest(NodeRank node, std::int64_t until_ns) {
  // In this order: whoever calls SetLives(node, true) looks at the rest afterwards.
  rests_until_ns_[IndexOf(node)].store(until_ns);
  lives_[IndexOf(node)].store(false);
}

bool Membership::IsResting(NodeRank node, std::int64_t now_ns) const {
  return now_ns < RestEnd(IndexOf(node));
}

void Membership::EndRest(NodeRank node) { rests_until_ns_[IndexOf(node)].store(0); }

void Membership::SetLeaves(NodeRank node, bool leaves) {
  leaves_[IndexOf(node)].store(leaves, std::memory_order_relaxed);
}

// One bit for each reason, because each begins and ends by itself.
void Membership::SetYields(YieldReason reason, bool yields) {
  if (yields) {
    yields_.fetch_or(BitOf(reason), std::memory_order_relaxed);
  } else {
    yields_.fetch_and(static_cast<std::uint8_t>(~BitOf(reason)), std::memory_order_relaxed);
  }
}

std::vector<NodeRank> Membership::Ranked(std::uint64_t group_key) const {
  std::vector<NodeRank> ranked;
  OwnerTree::Ranking ranking = owners_.RankingOf(group_key);
  while (const auto next = ranking.Next()) ranked.push_back(nodes_[*next].rank);
  return ranked;
}

std::optional<NodeRank> Membership::FirstToAsk(std::uint64_t group_key,
                                               std::span<const NodeRank> asked) const {
  return FirstBefore(group_key, asked, /*leaves=*/false);
}

// A node that leaves is asked only if no node that stays comes before this one, because it may end
// at any time.
std::optional<NodeRank> Membership::FirstSource(std::uint64_t group_key,
                                                std::span<const NodeRank> asked) const {
  std::optional<NodeRank> first = FirstToAsk(group_key, asked);
  if (!first) first = FirstBefore(group_key, asked, /*leaves=*/true);
  return first || !Yields() ? first : NextSubstitute(group_key, asked);
}

std::optional<NodeRank> Membership::FirstSupplier(std::uint64_t group_key,
                                                  std::span<const NodeRank> asked) const {
  const std::optional<NodeRank> first = FirstToAsk(group_key, asked);
  return first || !Yields() ? first : NextSubstitute(group_key, asked);
}

std::optional<NodeRank> Membership::FirstBefore(std::uint64_t group_key,
                                                std::span<const NodeRank> asked,
                                                bool leaves) const {
  if (is_alone()) return std::nullopt;  // spares a job of one node the hashing
  // The ranking is over all nodes, dead ones too, so that it is the same on every node; only then
  // those are left out that are dead, or leave.
  OwnerTree::Ranking ranking = owners_.RankingOf(group_key);
  while (const auto next = ranking.Next()) {
    if (*next == self_) break;  // the nodes after this one ask this one
    const NodeRank node = nodes_[*next].rank;
    if (LivesAt(*next) && LeavesAt(*next) == leaves && std::ranges::count(asked, node) == 0) {
      return node;
    }
  }
  return std::nullopt;
}

// A node that only rests keeps its place, so what it owns is not staged here for the short time.
bool Membership::TakesOver(std::uint64_t group_key, std::int64_t now_ns) const {
  bool can_get_it = false;
  OwnerTree::Ranking ranking = owners_.RankingOf(group_key);
  while (const auto next = ranking.Next()) {
    if (*next == self_) break;
    const std::int64_t rest_end_ns = RestEnd(*next);
    const bool comes_back = now_ns < rest_end_ns && rest_end_ns != kForEver;
    if (LeavesAt(*next)) {
      can_get_it = can_get_it || LivesAt(*next);
    } else if (LivesAt(*next) || comes_back) {
      return false;
    }
  }
  return can_get_it;
}

bool Membership::IsBehind(std::uint64_t group_key, NodeRank node) const {
  OwnerTree::Ranking ranking = owners_.RankingOf(group_key);
  while (const auto next = ranking.Next()) {
    if (nodes_[*next].rank == node) return false;
    if (*next == self_) return true;
  }
  return false;
}

std::optional<NodeRank> Membership::NextSubstitute(std::uint64_t group_key,
                                                   std::span<const NodeRank> asked) const {
  OwnerTree::Ranking ranking = owners_.RankingOf(group_key);
  // The nodes before this one would be asked first, so they are dead, or have no good copy.
  bool is_behind = false;
  while (const auto next = ranking.Next()) {
    const NodeRank node = nodes_[*next].rank;
    if (is_behind && ServesAt(*next) && std::ranges::count(asked, node) == 0) return node;
    is_behind = is_behind || *next == self_;
  }
  return std::nullopt;
}

}  // namespace forebay::plan
