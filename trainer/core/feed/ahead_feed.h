// AheadFeed: a feed that is some batches ahead of its reader: while a step is trained on, a thread
// of its own takes the next ones' and makes ready what can be, so that a step only picks it up.
#pragma once

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
  // What is made ready, on the feed's thread; must not fail, and may be empty.
  using Prepare = std::function<void(FeedBatch& batch)>;

  // `depth` batches, at least one, are taken at once when the reader has had those before: to wake
  // the thread costs a step more than to pick up a batch.
  AheadFeed(std::unique_ptr<Feed> feed, std::uint32_t depth, Prepare prepare);
  ~AheadFeed() override;  // cancels the feed unless it has been finished

  // An error, or the end, stays: it is what every later call returns, until Finish.
  Result<std::unique_ptr<FeedBatch>> Next() override FOREBAY_EXCLUDES(mutex_);
  std::uint64_t steps_per_epoch() const override { return feed_->steps_per_epoch(); }
  std::uint64_t sample_count() const override { return feed_->sample_count(); }
  std::uint64_t global_batch() const override { return feed_->global_batch(); }
  // Waits for the batch that is under way, and drops what nobody took.
  Status Finish() override FOREBAY_EXCLUDES(mutex_);
  // What has been taken is still handed out.
  void Cancel() override { feed_->Cancel(); }

 private:
  using Taken = Result<std::unique_ptr<FeedBatch>>;
  void Run() FOREBAY_EXCLUDES(mutex_);
  void Stop() FOREBAY_EXCLUDES(mutex_);

  const std::unique_ptr<Feed> feed_;
  const std::uint32_t depth_;
  const Prepare prepare_;
  Mutex mutex_;
  CondVar arrived_;  // for the reader: a batch, or the end
  CondVar had_all_;  // for the thread: the reader has had what was taken
  std::deque<Taken> ready_ FOREBAY_GUARDED_BY(mutex_);
  bool is_stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: everything above exists when it starts
};

}  // namespace forebay::train
