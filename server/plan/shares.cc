// A node's room is counted down as it gets groups. Groups that keep their keys come first, because
// nothing can be done about them; the others fill what is left.
#include "server/plan/shares.h"

#include <algorithm>
#include <compare>

#include "proto/contract/mix64.h"

namespace forebay::plan {
namespace {

// The smaller the slack, the more groups have to leave the node that their first key gives them,
// and the more of them move when the nodes change.
constexpr std::uint64_t kSlackDivisor = 32;
// Each try finds a node with room with a probability of at least 1 / (kSlackDivisor + 1), because
// so much of the room is never used. So the limit is reached with a probability below 10^-13, and
// the group then goes to a node that gets too much.
constexpr int kTriesMax = 1000;

// The bytes that each node takes at most. They add up to more than all groups have, even if each
// node leaves unused what is too little for the largest group.
std::vector<std::uint64_t> RoomOf(std::span<const Node> nodes, std::span<const GroupSize> groups) {
  std::uint64_t total = 0;
  std::uint64_t largest = 0;
  for (const GroupSize& group : groups) {
    total += group.bytes;
    largest = std::max(largest, group.bytes);
  }
  std::uint64_t weights = 0;
  for (const Node& node : nodes) weights += node.weight;
  std::vector<std::uint64_t> room;
  room.reserve(nodes.size());
  for (const Node& node : nodes) {
    // In two steps, because the product of bytes and weight may not fit in 64 bits. Rounded up.
    const std::uint64_t share =
        total / weights * node.weight + (total % weights * node.weight + weights - 1) / weights;
    room.push_back(share + share / kSlackDivisor + largest);
  }
  return room;
}

// A group whose key may change. It has copies of what is needed, because indices in another order
// than that of the memory would cost a cache miss each: for 2^24 groups, more than the hashing.
struct Movable {
  std::uint64_t key = 0;
  std::uint64_t bytes = 0;
  std::uint32_t group = 0;
  std::uint32_t owner = 0;  // of `key`
  auto operator<=>(const Movable&) const = default;
};

// Takes the bytes of a group out of a node's room, if they fit.
bool TakeRoom(std::uint64_t bytes, std::uint64_t& room) {
  if (room < bytes) return false;
  room -= bytes;
  return true;
}

}  // namespace

std::vector<GroupShare> BalancedShares(const OwnerTree& tree, std::span<const Node> nodes,
                                       std::span<const GroupSize> groups) {
  std::vector<std::uint64_t> room = RoomOf(nodes, groups);
  std::vector<GroupShare> shares;
  shares.reserve(groups.size());
  std::vector<Movable> movable;
  movable.reserve(groups.size());
  for (std::uint32_t i = 0; i < groups.size(); ++i) {
    const GroupSize& group = groups[i];
    const auto owner = static_cast<std::uint32_t>(tree.OwnerOf(group.key));
    shares.push_back({.key = group.key, .owner = owner});
    if (group.keeps_key) {
      room[owner] -= std::min(room[owner], group.bytes);
    } else {
      movable.push_back({.key = group.key, .bytes = group.bytes, .group = i, .owner = owner});
    }
  }
  // In the order of the keys, which are hashes. In the order of the catalog, the nodes would be
  // full at its end, and the last groups of every data set would be the ones that do not stay in
  // place.
  std::ranges::sort(movable);
  for (const Movable& one : movable) {
    // Most groups keep their keys, and then the memory of their shares need not be touched.
    if (TakeRoom(one.bytes, room[one.owner])) continue;
    // The sequence of keys that are tried belongs to the group alone.
    std::uint64_t state = one.key;
    for (int tries = 1; tries < kTriesMax; ++tries) {
      const std::uint64_t key = NextWord64(state);
      const auto owner = static_cast<std::uint32_t>(tree.OwnerOf(key));
      if (!TakeRoom(one.bytes, room[owner])) continue;
      shares[one.group] = {.key = key, .owner = owner};
      break;
    }
  }
  return shares;
}

}  // namespace forebay::plan
