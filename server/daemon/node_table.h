// NodeTable: the places of the job, one for each rank, and which node is in each of them. What
// decides ownership is fixed for a place (rendezvous::NodeEntry). The node in it may change, when
// another one takes the place of a node that is lost or has left.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/thread_annotations.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::daemon {

// Thread-safe.
class NodeTable {
 public:
  // Replaces all; entry i is that of rank i. The number of places does not change after the first
  // call.
  void Set(std::vector<rendezvous::NodeEntry> nodes);
  // The node of the entry is in the place of its rank from now on.
  void Put(const rendezvous::NodeEntry& node);

  // 0 in a job of one node.
  std::size_t size() const;
  std::vector<rendezvous::NodeEntry> All() const;
  rendezvous::NodeEntry At(NodeRank rank) const;
  // For messages: "node17:/local/forebay (job 4711) (rank 3)".
  std::string Name(NodeRank rank) const { return At(rank).Text(); }

 private:
  mutable Mutex mutex_;
  std::vector<rendezvous::NodeEntry> nodes_ FOREBAY_GUARDED_BY(mutex_);  // by rank
};

}  // namespace forebay::daemon
