// CopyLink: a thread that copies between the device's memory and the host's, one copy after the
// other, while the caller computes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <stop_token>
#include <thread>

#include "proto/contract/thread_annotations.h"

namespace forebay::train {

struct LinkFigures {
  std::uint64_t bytes = 0;
  std::uint64_t busy_ns = 0;
};

// One thread asks, another copies. Where the device is a processor, both sides are its memory, and
// a rate stands in for a link of that bandwidth.
class CopyLink {
 public:
  // bytes_per_ns: of a slower link that is emulated; 0: as fast as copying goes.
  explicit CopyLink(double bytes_per_ns = 0);
  // Waits until all that was begun is done.
  ~CopyLink();
  CopyLink(const CopyLink&) = delete;
  CopyLink& operator=(const CopyLink&) = delete;

  // Begins to copy; both pieces stay where they are, unread and unwritten, until it is done.
  // Sizes are equal. Returns the number of the copy, for Wait and Done.
  std::uint64_t Begin(std::span<std::byte> to, std::span<const std::byte> from)
      FOREBAY_EXCLUDES(mutex_);
  void Wait(std::uint64_t copy) FOREBAY_EXCLUDES(mutex_);
  bool Done(std::uint64_t copy) const FOREBAY_EXCLUDES(mutex_);
  LinkFigures figures() const FOREBAY_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;
  struct Copy {
    std::span<std::byte> to;
    std::span<const std::byte> from;
    Clock::time_point asked;
  };

  void Run(const std::stop_token& stop) FOREBAY_EXCLUDES(mutex_);
  void Transfer(const Copy& copy);

  const double bytes_per_ns_;
  mutable Mutex mutex_;
  StoppableCondVar begun_;
  CondVar done_;
  std::deque<Copy> waiting_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t begun_count_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_count_ FOREBAY_GUARDED_BY(mutex_) = 0;
  LinkFigures figures_ FOREBAY_GUARDED_BY(mutex_);
  Clock::time_point free_at_;  // when the emulated link is idle again; used by the thread alone
  std::jthread thread_;        // last: it uses all of the above
};

}  // namespace forebay::train
