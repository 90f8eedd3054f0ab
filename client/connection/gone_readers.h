// GoneReaders: streams of this client that have no batch any more, and could not tell the daemon.
// The next stream tells it, and the daemon frees what it has kept for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {

// Thread-safe. The numbers are those of OpenStream.reader.
class GoneReaders {
 public:
  // Beyond limits::kGoneReadersMax, numbers are dropped: the daemon then keeps what it has for them
  // until this process ends.
  void Add(std::uint64_t reader) {
    const MutexLock lock(mutex_);
    if (readers_.size() < static_cast<std::size_t>(limits::kGoneReadersMax)) {
      readers_.push_back(reader);
    }
  }
  // All that were added since the last call.
  std::vector<std::uint64_t> Take() {
    const MutexLock lock(mutex_);
    return std::exchange(readers_, {});
  }

 private:
  Mutex mutex_;
  std::vector<std::uint64_t> readers_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::internal
