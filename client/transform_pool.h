// TransformPool: runs the caller's transform hook over arriving batches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "client/stream/batch_state.h"
#include "forebay/stream_options.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {

// Thread-safe. The queue is bounded by the stream's credits: each batch in it has taken one.
// Destruction drops what has not begun, waits for what has, and joins the threads.
class TransformPool {
 public:
  struct Options {
    Transform transform;
    std::uint64_t output_bytes = 0;  // per sample
    std::uint32_t threads = 1;
    std::uint64_t seed = 0;          // of the stream's order
    // Called on a worker when a batch's last sample is done, with the first error if any.
    std::function<void(const Batch::State*, Status)> done;
  };
  explicit TransformPool(Options options);
  ~TransformPool();
  TransformPool(const TransformPool&) = delete;
  TransformPool& operator=(const TransformPool&) = delete;

  // Queues a batch. `state` is the writable view of `shared`, which nobody else reads yet.
  void Submit(std::shared_ptr<const Batch::State> shared, Batch::State& state);

 private:
  // Shared by the workers of one batch; each takes a range of samples at a time.
  struct Job {
    Job(Batch taken, Batch::State& its_state) : batch(std::move(taken)), state(its_state) {}
    Batch batch;
    Batch::State& state;
    std::atomic<std::uint32_t> next_sample{0};
    std::atomic<std::uint32_t> samples_left{0};
    Mutex mutex;
    std::optional<Error> error FOREBAY_GUARDED_BY(mutex);  // the first
  };
  void Work();
  void RunJob(Job& job);
  Status RunSample(const Job& job, std::uint32_t sample) const;
  void FinishJob(Job& job);

  Options options_;
  Mutex mutex_;
  CondVar wake_;
  // The front may still have samples to take.
  std::deque<std::shared_ptr<Job>> queue_ FOREBAY_GUARDED_BY(mutex_);
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> workers_;
};

}  // namespace forebay::internal
