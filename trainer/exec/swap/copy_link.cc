// A queue and a thread that copies. Copies are numbered and done in order, so waiting for one is
// waiting until a counter has reached its number. With a rate, the thread sleeps until a link of
// that bandwidth would have been done, which lets tests and benchmarks see a slow link.
#include "trainer/exec/swap/copy_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "proto/contract/check.h"

namespace forebay::train {

CopyLink::CopyLink(double bytes_per_ns)
    : bytes_per_ns_(bytes_per_ns), thread_([this](const std::stop_token& stop) { Run(stop); }) {
  FOREBAY_CHECK(bytes_per_ns >= 0);
}

CopyLink::~CopyLink() {
  std::uint64_t last = 0;
  {
    const MutexLock lock(mutex_);
    last = begun_count_;
  }
  // All copies that were begun are waited for: their memory may go after this.
  Wait(last);
}

std::uint64_t CopyLink::Begin(std::span<std::byte> to, std::span<const std::byte> from) {
  FOREBAY_CHECK(to.size() == from.size());
  std::uint64_t number = 0;
  {
    const MutexLock lock(mutex_);
    // Both spans must stay valid until the copy has been waited for.
    waiting_.push_back({.to = to, .from = from, .asked = Clock::now()});
    number = ++begun_count_;
  }
  // Without the lock, so that the thread does not wake only to wait for it.
  begun_.NotifyOne();
  return number;
}

void CopyLink::Wait(std::uint64_t copy) {
  const MutexLock lock(mutex_);
  FOREBAY_CHECK(copy <= begun_count_);
  while (done_count_ < copy) done_.Wait(mutex_);
}

bool CopyLink::Done(std::uint64_t copy) const {
  const MutexLock lock(mutex_);
  return done_count_ >= copy;
}

LinkFigures CopyLink::figures() const {
  const MutexLock lock(mutex_);
  return figures_;
}

void CopyLink::Transfer(const Copy& copy) {
  std::memcpy(copy.to.data(), copy.from.data(), copy.to.size());
  // The usual case: 0 means as fast as memory is.
  if (bytes_per_ns_ == 0) return;
  // The link's own clock: waking up late delays this copy, but not those behind it.
  const std::chrono::nanoseconds takes(
      std::llround(static_cast<double>(copy.to.size()) / bytes_per_ns_));
  free_at_ = std::max(free_at_, copy.asked) + takes;
  std::this_thread::sleep_until(free_at_);
}

void CopyLink::Run(const std::stop_token& stop) {
  UniqueLock lock(mutex_);
  while (begun_.Wait(mutex_, stop,
                     [&]() FOREBAY_REQUIRES(mutex_) { return !waiting_.empty(); })) {
    // Taken out before it is made, so that Begin need not wait for a long copy.
    const Copy copy = waiting_.front();
    waiting_.pop_front();
    lock.Unlock();
    // An emulated link is at work from when it was asked, not from when this thread woke.
    const Clock::time_point began =
        bytes_per_ns_ > 0 ? std::max(free_at_, copy.asked) : Clock::now();
    Transfer(copy);
    const std::chrono::nanoseconds took = Clock::now() - began;
    lock.Lock();
    ++done_count_;
    figures_.bytes += copy.to.size();
    figures_.busy_ns += static_cast<std::uint64_t>(took.count());
    // All, because several threads may wait for different copies.
    done_.NotifyAll();
  }
}

}  // namespace forebay::train
