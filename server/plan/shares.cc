// A node's room is counted down as it gets groups. Groups that keep their keys come first, because
// nothing can be done about them; the others fill what is left.
#include "server/plan/shares.h"

#include <algorithm>
#include <numeric>

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

}  // namespace

std::vector<std::uint64_t> BalancedKeys(const OwnerTree& tree, std::span<const Node> nodes,
                                        std::span<const GroupSize> groups) {
  std::vector<std::uint64_t> room = RoomOf(nodes, groups);
  std::vector<std::uint64_t> keys;
  keys.reserve(groups.size());
  for (const GroupSize& group : groups) {
    keys.push_back(group.key);
    if (!group.keeps_key) continue;
    std::uint64_t& left = room[tree.OwnerOf(group.key)];
    left -= std::min(left, group.bytes);
  }
  // In the order of the keys, which are hashes. In the order of the catalog, the nodes would be
  // full at its end, and the last groups of every data set would be the ones that do not stay in
  // place.
  std::vector<std::uint32_t> by_key(groups.size());
  std::iota(by_key.begin(), by_key.end(), 0U);
  std::ranges::sort(by_key, {}, [&](std::uint32_t group) { return groups[group].key; });
  for (const std::uint32_t group : by_key) {
    if (groups[group].keeps_key) continue;
    // The sequence of keys that are tried belongs to the group alone.
    std::uint64_t state = groups[group].key;
    std::uint64_t key = state;
    for (int tries = 0; tries < kTriesMax; ++tries) {
      std::uint64_t& left = room[tree.OwnerOf(key)];
      if (left >= groups[group].bytes) {
        left -= groups[group].bytes;
        keys[group] = key;
        break;
      }
      key = NextWord64(state);
    }
  }
  return keys;
}

}  // namespace forebay::plan
