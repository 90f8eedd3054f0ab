// One thread takes batches from the feed and queues them, up to `depth_`. Then it sleeps until the
// reader has had all of them, and takes `depth_` more. Waking it for each batch would cost a step
// more than picking the batch up does.
#include "trainer/core/feed/ahead_feed.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace forebay::train {
namespace {

// After an error or the end of the feed nothing more is asked for.
bool IsLast(const Result<std::unique_ptr<FeedBatch>>& taken) {
  return !taken.has_value() || *taken == nullptr;
}

// A thread that wakes may take the processor from the one that woke it, which is about to compute;
// one of this policy does not. Where the system refuses, steps begin a little later.
void YieldToComputing() {
  const sched_param none = {};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

}  // namespace

AheadFeed::AheadFeed(std::unique_ptr<Feed> feed, std::uint32_t depth, Prepare prepare)
    : feed_(std::move(feed)),
      depth_(std::max(depth, 1U)),
      prepare_(std::move(prepare)),
      thread_([this] { Run(); }) {}

AheadFeed::~AheadFeed() {
  // Its Next may be waiting for a daemon that does not answer.
  if (thread_.joinable()) feed_->Cancel();
  Stop();
}

// Wakes both sides, and waits for the thread.
void AheadFeed::Stop() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  had_all_.NotifyAll();
  arrived_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  ready_.clear();
}

// The thread: takes a batch without the lock, prepares it, and queues it.
void AheadFeed::Run() {
  YieldToComputing();
  for (bool is_last = false; !is_last;) {
    Taken taken = feed_->Next();
    // An error or the end is the last entry of the queue, and stays there for every later call.
    is_last = IsLast(taken);
    if (!is_last && prepare_) prepare_(**taken);
    const MutexLock lock(mutex_);
    ready_.push_back(std::move(taken));
    arrived_.NotifyOne();
    // The lock is released by the scope; the next batch is taken without it.
    if (ready_.size() < depth_ && !is_stopping_) continue;
    while (!ready_.empty() && !is_last && !is_stopping_) had_all_.Wait(mutex_);
    if (is_stopping_) return;
  }
}

Result<std::unique_ptr<FeedBatch>> AheadFeed::Next() {
  UniqueLock lock(mutex_);
  while (ready_.empty() && !is_stopping_) arrived_.Wait(mutex_);
  // Batches that are ready are still delivered while the feed is being stopped; after that there
  // are none.
  if (ready_.empty()) {
    return Error(ErrorCode::kFailedPrecondition, "the feed has been finished");
  }
  if (!ready_.front().has_value()) return ready_.front().error();
  if (*ready_.front() == nullptr) return std::unique_ptr<FeedBatch>();
  Taken taken = std::move(ready_.front());
  ready_.pop_front();
  const bool had_all = ready_.empty();
  lock.Unlock();
  // After the unlock: the thread would otherwise wake only to wait for the mutex.
  if (had_all) had_all_.NotifyOne();
  return taken;
}

std::size_t AheadFeed::ready() const {
  const MutexLock lock(mutex_);
  return ready_.size();
}

Status AheadFeed::Finish() {
  Stop();
  return feed_->Finish();
}

}  // namespace forebay::train
