// The thread has the priority of all others, because the kernel holds the lock of the process's
// address space while it populates pages. On a busy machine, a thread of low priority would hold it
// for seconds, and all threads that start, end, or touch a page for the first time would wait.
//
// MADV_POPULATE_WRITE makes the kernel allocate and zero pages as if they were written to, but does
// not change bytes, so it is safe for pages that a block uses already. Reach sets a goal per
// region, and the thread works towards it in steps of one huge page, so that it ends soon when
// asked to.
#include "server/tier/ram/populate_ahead.h"

#include <algorithm>

#include "proto/contract/check.h"

namespace forebay::tier {
PopulateAhead::PopulateAhead(std::span<const SharedRegion> regions, HugePages& pages,
                             std::uint64_t ahead_bytes)
    : regions_(regions), pages_(pages), ahead_bytes_(ahead_bytes), progress_(regions.size()) {
  FOREBAY_CHECK(ahead_bytes > 0);
  thread_ = std::thread([this] { Run(); });
}

PopulateAhead::~PopulateAhead() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void PopulateAhead::Reach(std::size_t region, std::uint64_t end_bytes) {
  const std::uint64_t region_bytes = regions_[region].bytes().size();
  FOREBAY_CHECK(end_bytes <= region_bytes);
  if (regions_[region].is_reserved()) return;
  {
    MutexLock lock(mutex_);
    Progress& progress = progress_[region];
    // The goal moves once half of the populated memory is used, not with every block, so that the
    // thread seldom wakes.
    const std::uint64_t left = progress.wanted - std::min(progress.wanted, end_bytes);
    if (refused_ || progress.wanted == region_bytes || left > ahead_bytes_ / 2) return;
    // The kernel takes whole pages, so the step in which `end_bytes` lies is populated from its
    // beginning. Pages below it are in use, or were.
    progress.done = std::max(progress.done, end_bytes / kStepBytes * kStepBytes);
    progress.wanted = end_bytes + std::min(ahead_bytes_, region_bytes - end_bytes);
  }
  changed_.NotifyAll();
}

void PopulateAhead::Drain() {
  MutexLock lock(mutex_);
  while (!stopping_ && !refused_ && NextLocked() != nullptr) changed_.Wait(mutex_);
}

std::uint64_t PopulateAhead::populated_bytes() const {
  MutexLock lock(mutex_);
  return populated_bytes_;
}

PopulateAhead::Progress* PopulateAhead::NextLocked() {
  const auto behind = std::ranges::find_if(
      progress_, [](const Progress& progress) { return progress.done < progress.wanted; });
  return behind == progress_.end() ? nullptr : &*behind;
}

void PopulateAhead::Run() {
  UniqueLock lock(mutex_);
  for (;;) {
    Progress* next = nullptr;
    while (!stopping_ && next == nullptr) {
      next = refused_ ? nullptr : NextLocked();
      if (next == nullptr) changed_.Wait(mutex_);
    }
    if (stopping_) return;
    // The lock is not held while the kernel works. `next` stays valid: progress_ never grows.
    const auto index = static_cast<std::size_t>(next - progress_.data());
    const std::span<std::byte> region = regions_[index].bytes();
    const std::uint64_t begin = next->done;
    const std::uint64_t bytes = std::min(kStepBytes, region.size() - begin);
    lock.Unlock();
    // Several times faster than small pages. After a success nothing is left to populate.
    pages_.Prepare(index, begin, bytes);
    const bool populated = Advise(region.subspan(begin, bytes), kPopulateWrite);
    lock.Lock();
    if (populated) {
      next->done = std::max(next->done, begin + bytes);
      populated_bytes_ += bytes;
    } else {
      refused_ = true;
    }
    if (refused_ || NextLocked() == nullptr) changed_.NotifyAll();
  }
}

}  // namespace forebay::tier
