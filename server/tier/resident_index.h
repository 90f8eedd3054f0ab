// ResidentIndex: the extents that the cache holds, by key. It also numbers them from 0 without
// gaps, so that the cache can look at some or at all of them in short steps, between which it
// releases its lock.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "server/tier/extent_key.h"
#include "server/tier/resident_extent.h"

namespace forebay::tier {

// Where one extent is.
struct Residency {
  std::shared_ptr<ResidentExtent> ram;  // null: not in RAM
  bool is_guest_in_ram = false;         // its home is not there
  bool is_moving = false;               // its bytes are being moved; readers wait for that
  bool is_on_ssd = false;
  bool is_guest_on_ssd = false;
  // The object that readers hold of the copy on SSD; made when the first of them asks.
  std::weak_ptr<const ResidentExtent> ssd;

 private:
  friend class ResidentIndex;
  std::size_t number = 0;
};

// Not thread-safe. Nodes keep their address until they are erased.
class ResidentIndex {
 public:
  using Node = std::pair<const ExtentKey, Residency>;

  std::size_t size() const { return numbered_.size(); }
  // The extent with this number, which is less than size(). Erasing an extent gives its number to
  // the one that had the highest, so a walk from the highest number down to 0 meets every extent
  // that is there from its beginning to its end, even if others are erased on the way.
  Node& at(std::size_t number) { return *numbered_[number]; }
  const Node& at(std::size_t number) const { return *numbered_[number]; }

  // Null if the extent is not there.
  Node* Find(const ExtentKey& key) {
    const auto found = nodes_.find(key);
    return found == nodes_.end() ? nullptr : &*found;
  }
  bool Holds(const ExtentKey& key) const { return nodes_.contains(key); }
  Residency& FindOrAdd(const ExtentKey& key) {
    const auto [found, is_new] = nodes_.try_emplace(key);
    if (is_new) {
      found->second.number = numbered_.size();
      numbered_.push_back(&*found);
    }
    return found->second;
  }
  void Erase(const Node& node) {
    const std::size_t number = node.second.number;
    numbered_[number] = numbered_.back();
    numbered_[number]->second.number = number;
    numbered_.pop_back();
    nodes_.erase(nodes_.find(node.first));
  }

 private:
  std::unordered_map<ExtentKey, Residency, ExtentKeyHash> nodes_;
  std::vector<Node*> numbered_;
};

}  // namespace forebay::tier
