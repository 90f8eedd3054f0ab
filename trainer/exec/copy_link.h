// CopyLink: copies between the device's memory and the host's, one after the other, beside the
// computation.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>

namespace forebay::train {

struct LinkFigures {
  std::uint64_t bytes = 0;
  std::uint64_t busy_ns = 0;
};

// One thread asks, another copies. Where the device is a CPU, both sides are its memory; a rate
// stands in for a link of that bandwidth.
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
  std::uint64_t Begin(std::span<std::byte> to, std::span<const std::byte> from);
  void Wait(std::uint64_t copy);
  bool Done(std::uint64_t copy) const;
  LinkFigures figures() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Copy {
    std::span<std::byte> to;
    std::span<const std::byte> from;
    Clock::time_point asked;
  };

  void Run(const std::stop_token& stop);
  void Transfer(const Copy& copy);

  double bytes_per_ns_;
  mutable std::mutex mutex_;
  std::condition_variable_any begun_;
  std::condition_variable done_;
  std::deque<Copy> waiting_;
  std::uint64_t begun_count_ = 0;
  std::uint64_t done_count_ = 0;
  LinkFigures figures_;
  Clock::time_point free_at_;  // when the emulated link is done with what it has; the thread's
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace forebay::train
