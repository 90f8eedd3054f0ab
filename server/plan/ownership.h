// Ownership: which node reads a group of extents from the GFS and supplies it to the others, and
// which nodes take its place if it does not answer. Weighted rendezvous hashing (Thaler and
// Ravishankar, 1998) in levels: a pure function of the group and the nodes, so all nodes agree
// without a message, and a node that dies leaves only its own share to others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/ids.h"

namespace forebay::plan {

struct Node {
  NodeRank rank;
  std::uint32_t weight = 1;  // 1..limits::kNodeWeightMax, in proportion to the node's tier capacity
  // Tells the node from the others in every job that it belongs to, so that it owns the same groups
  // again after the ranks were renumbered. Of nodes without such a name, the rank.
  std::uint64_t identity = rank.value();
};

// Identifies a group of extents in OwnerTree: the data set's hash and the number of the group.
std::uint64_t GroupKey(std::uint64_t dataset, std::uint64_t group);

// The nodes of a job, arranged for fast choice. Immutable, so it may be used by any thread. Integer
// arithmetic only, so that nodes agree whatever compiler built them.
class OwnerTree {
 public:
  // 1 to limits::kNodeCountMax nodes of distinct ranks and distinct identities. Their order does
  // not matter. Takes O(n log n) time and about 40 bytes a node.
  explicit OwnerTree(std::span<const Node> nodes);

  // The nodes in the order in which they are asked for a group: its owner, then its substitutes.
  // Names each node once. A node is first in proportion to its weight, and it takes over from a
  // node that died in proportion to its weight too.
  class Ranking {
   public:
    // The index of the next node, in the list that the tree was made of. Takes O(log n); nodes that
    // come after dozens of others take O(n log n) once. Nullopt: all nodes have been named.
    std::optional<std::size_t> Next();

   private:
    friend class OwnerTree;
    Ranking(const OwnerTree& tree, std::uint64_t key) : tree_(tree), key_(key) {}

    const OwnerTree& tree_;
    const std::uint64_t key_;
    std::uint32_t draws_ = 0;
    std::vector<std::size_t> named_;
    std::vector<std::size_t> rest_;  // the last one is named next
  };
  // `key`: of GroupKey. The ranking refers to this object.
  Ranking RankingOf(std::uint64_t key) const { return Ranking(*this, key); }
  // The index of the owner, which is the first node of the ranking. O(log n).
  std::size_t OwnerOf(std::uint64_t key) const { return Draw(key, 0); }

 private:
  // A branch holds the nodes whose hashed identities begin with certain digits: one node, or
  // several in further branches.
  struct Branch {
    std::uint64_t salt = 0;     // derived from these digits only
    std::uint32_t weight = 0;   // of all its nodes
    std::uint32_t below = 0;    // index of the node or of the fork
    bool is_node = false;
  };
  struct Fork {
    std::uint32_t begin = 0, end = 0;  // its branches in branches_
  };
  struct Named {
    std::uint64_t hash = 0;  // of the identity
    std::uint32_t weight = 0;
    std::uint32_t index = 0;
  };

  std::uint32_t Grow(std::span<const Named> nodes, std::uint32_t depth);
  std::size_t Draw(std::uint64_t key, std::uint32_t attempt) const;

  std::vector<std::uint64_t> hashes_;  // of identities, by index
  std::vector<Branch> branches_;
  std::vector<Fork> forks_;
  std::uint32_t root_ = 0;  // index in forks_
};

}  // namespace forebay::plan
