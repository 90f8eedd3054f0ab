// GoneReaders: streams of this process that have no batch any more, and could not tell the daemon.
// The next stream tells it, and the daemon frees what it has kept for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {

// Thread-safe. One list for all clients of the process: the stream that a program opens next may be
// one of another client.
class GoneReaders {
 public:
  static GoneReaders& OfProcess() {
    static GoneReaders readers;
    return readers;
  }

  // `daemon`: the generation of the daemon that may keep something for it. Beyond
  // limits::kGoneReadersMax, the oldest are forgotten: their daemon keeps what it has for them
  // until this process ends.
  void Add(std::uint64_t daemon, std::uint64_t reader) {
    const MutexLock lock(mutex_);
    gone_.push_back({.daemon = daemon, .reader = reader});
    if (gone_.size() > static_cast<std::size_t>(limits::kGoneReadersMax)) gone_.pop_front();
  }
  // Removes and returns those of this daemon.
  std::vector<std::uint64_t> Take(std::uint64_t daemon) {
    std::vector<std::uint64_t> taken;
    const MutexLock lock(mutex_);
    std::erase_if(gone_, [&](const Gone& gone) {
      if (gone.daemon != daemon) return false;
      taken.push_back(gone.reader);
      return true;
    });
    return taken;
  }

 private:
  struct Gone {
    std::uint64_t daemon = 0;
    std::uint64_t reader = 0;  // OpenStream.reader
  };
  Mutex mutex_;
  std::deque<Gone> gone_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::internal
