// Maps pages of the shared memory before the reader touches them. The kernel would otherwise map
// them one by one, at the reader's expense; here a thread of the lowest priority does it. Memory is
// divided into windows with one bit each, so that telling of a span that is known already is one
// load.
#include "client/connection/page_populator.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace forebay::internal {
namespace {

constexpr std::uint64_t kBitsPerWord = 64;

}  // namespace

PagePopulator::PagePopulator(std::shared_ptr<const RegionMap> regions)
    : regions_(std::move(regions)) {
  for (const auto& region : regions_->regions()) {
    const std::uint64_t bytes = region ? region->bytes() : 0;
    const std::uint64_t windows = (bytes + kWindowBytes - 1) / kWindowBytes;
    const std::uint64_t words = (windows + kBitsPerWord - 1) / kBitsPerWord;
    wanted_.push_back({std::make_unique<std::atomic<std::uint64_t>[]>(words)});
  }
  thread_ = std::thread([this] { Run(); });
}

PagePopulator::~PagePopulator() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void PagePopulator::Want(const WireSpan& span) {
  if (span.length == 0 || refused_.load(std::memory_order_relaxed)) return;
  // Relaxed order is enough for these bits: they say what was asked for, and guard no data. A wrong
  // answer costs a page fault.
  const Wanted& wanted = wanted_[span.region];
  const std::uint64_t last = (span.offset + span.length - 1) / kWindowBytes;
  for (std::uint64_t index = span.offset / kWindowBytes; index <= last; ++index) {
    std::atomic<std::uint64_t>& word = wanted.words[index / kBitsPerWord];
    const std::uint64_t bit = std::uint64_t{1} << (index % kBitsPerWord);
    // The load alone is what happens in a warm stream; fetch_or decides between two threads that
    // come first.
    if ((word.load(std::memory_order_relaxed) & bit) != 0) continue;
    if ((word.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) continue;
    {
      MutexLock lock(mutex_);
      queue_.push_back({span.region, index});
    }
    changed_.NotifyAll();
  }
}

void PagePopulator::Drain() {
  MutexLock lock(mutex_);
  while (!stopping_ && (busy_ || !queue_.empty())) changed_.Wait(mutex_);
}

void PagePopulator::Run() {
  // With what processor time is left over: never before a first batch, nor the trainer.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
  UniqueLock lock(mutex_);
  for (;;) {
    while (!stopping_ && queue_.empty()) changed_.Wait(mutex_);
    if (stopping_) return;
    const Window window = queue_.front();
    queue_.pop_front();
    busy_ = true;
    lock.Unlock();
    // The mutex is free meanwhile: a window of 2 MiB takes a while, and Want is called on gRPC's
    // thread.
    const bool populated = Populate(window);
    lock.Lock();
    busy_ = false;
    if (populated) {
      windows_.fetch_add(1, std::memory_order_relaxed);
    } else {
      // Pages are then mapped as they are touched, which is slower and as correct.
      refused_.store(true, std::memory_order_relaxed);
      queue_.clear();
    }
    if (queue_.empty()) changed_.NotifyAll();
  }
}

bool PagePopulator::Populate(const Window& window) {
  const RegionMapping& region = *regions_->regions()[window.region];
  const std::uint64_t begin = window.index * kWindowBytes;
  const std::uint64_t bytes = std::min(kWindowBytes, region.bytes() - begin);
  return Advise({region.data() + begin, bytes}, kPopulateRead);
}

}  // namespace forebay::internal
