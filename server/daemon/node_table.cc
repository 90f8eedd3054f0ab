// Copies are returned, because a reference would outlive the lock.
#include "server/daemon/node_table.h"

#include <utility>

namespace forebay::daemon {

void NodeTable::Set(std::vector<rendezvous::NodeEntry> nodes) {
  const MutexLock lock(mutex_);
  nodes_ = std::move(nodes);
}

void NodeTable::Put(const rendezvous::NodeEntry& node) {
  const MutexLock lock(mutex_);
  nodes_.at(node.rank.value()) = node;
}

std::size_t NodeTable::size() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

std::vector<rendezvous::NodeEntry> NodeTable::All() const {
  const MutexLock lock(mutex_);
  return nodes_;
}

rendezvous::NodeEntry NodeTable::At(NodeRank rank) const {
  const MutexLock lock(mutex_);
  return nodes_.at(rank.value());
}

}  // namespace forebay::daemon
