// AheadFeed: a feed that reads ahead. While a step is computed, a thread takes the next batches and
// prepares them, so that the step only picks one up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "trainer/core/feed/feed.h"

namespace forebay::train {

class AheadFeed final : public Feed {
 public:
  // Prepares a batch, on the feed's thread. It must not fail, and may be empty.
  using Prepare = std::function<void(FeedBatch& batch)>;

  // Takes `depth` batches, at least one, at a time, when the reader has had those before: waking
  // the thread costs a step more than picking up a batch does.
  AheadFeed(std::unique_ptr<Feed> feed, std::uint32_t depth, Prepare prepare);
  ~AheadFeed() override;  // cancels the feed unless it has been finished

  // After an error or the end of the feed, every later call returns the same, until Finish.
  Result<std::unique_ptr<FeedBatch>> Next() override FOREBAY_EXCLUDES(mutex_);
  std::uint64_t steps_per_epoch() const override { return feed_->steps_per_epoch(); }
  std::uint64_t sample_count() const override { return feed_->sample_count(); }
  std::uint64_t global_batch() const override { return feed_->global_batch(); }
  // How many calls of Next would return at once; the end of the feed, or its error, counts as one.
  std::size_t ready() const FOREBAY_EXCLUDES(mutex_);
  // Waits for the batch that is being taken, and drops batches that nobody took.
  Status Finish() override FOREBAY_EXCLUDES(mutex_);
  // Batches that were taken before are still returned by Next.
  void Cancel() override { feed_->Cancel(); }

 private:
  using Taken = Result<std::unique_ptr<FeedBatch>>;
  void Run() FOREBAY_EXCLUDES(mutex_);
  void Stop() FOREBAY_EXCLUDES(mutex_);

  const std::unique_ptr<Feed> feed_;
  const std::uint32_t depth_;
  const Prepare prepare_;
  mutable Mutex mutex_;
  CondVar arrived_;  // for the reader: a batch, or the end
  CondVar had_all_;  // for the thread: the reader has had what was taken
  std::deque<Taken> ready_ FOREBAY_GUARDED_BY(mutex_);
  bool is_stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: everything above exists when it starts
};

}  // namespace forebay::train
