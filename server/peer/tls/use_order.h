// UseOrder: descriptors by the time when they were last used, the one that was not used for the
// longest time first. So a time limit, and the choice of what to close, cost no search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace forebay::peer {

// Not thread-safe.
class UseOrder {
 public:
  struct Entry {
    int fd = -1;
    std::int64_t used_ns = 0;
  };
  // Adds the descriptor, or notes that it is used now. `now_ns` never decreases.
  void Touch(int fd, std::int64_t now_ns) {
    Remove(fd);
    by_fd_[fd] = entries_.insert(entries_.end(), {.fd = fd, .used_ns = now_ns});
  }
  // No effect if it is not there.
  void Remove(int fd) {
    const auto found = by_fd_.find(fd);
    if (found == by_fd_.end()) return;
    entries_.erase(found->second);
    by_fd_.erase(found);
  }
  // Null: there is none. Valid until the next call of Touch or Remove.
  const Entry* oldest() const { return entries_.empty() ? nullptr : &entries_.front(); }
  std::size_t size() const { return entries_.size(); }

 private:
  std::list<Entry> entries_;
  std::unordered_map<int, std::list<Entry>::iterator> by_fd_;
};

}  // namespace forebay::peer
