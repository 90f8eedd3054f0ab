// Runs the caller's hook on worker threads. Workers share one batch, a few samples at a time, so
// that the first batch of a queue is ready as early as possible; the worker that finishes the last
// sample reports the batch. An error in one sample does not stop the others: they are being written
// anyway.
#include "client/transform_pool.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "proto/contract/order.h"

namespace forebay::internal {
namespace {

// Samples that a worker takes at a time: few enough to spread one batch over the workers,
// enough that the counter is not the bottleneck.
constexpr std::uint32_t kSamplesPerTurn = 4;

}  // namespace

TransformPool::TransformPool(Options options) : options_(std::move(options)) {
  const std::uint32_t threads = std::max<std::uint32_t>(options_.threads, 1);
  try {
    for (std::uint32_t i = 0; i < threads; ++i) workers_.emplace_back([this] { Work(); });
  } catch (const std::exception&) {
    // No more threads for this process: fewer workers take longer, and without any there is no
    // pool. Those that there are wait for work already, so this must not throw.
    if (workers_.empty()) throw;
  }
}

TransformPool::~TransformPool() {
  // Declared before the lock, so that it is destroyed last: the last copy of a batch goes back to
  // its stream, which takes the stream's mutex and should find none of ours held.
  std::deque<std::shared_ptr<Job>> dropped;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(queue_);
  }
  wake_.NotifyAll();
  workers_.clear();
}

void TransformPool::Submit(std::shared_ptr<const Batch::State> shared, Batch::State& state) {
  // Sized before any worker sees it. Workers then write to disjoint parts without a lock.
  state.transformed.resize(std::size_t{state.sample_count} * options_.output_bytes);
  auto job = std::make_shared<Job>(Batch(std::move(shared)), state);
  job->samples_left = state.sample_count;
  {
    MutexLock lock(mutex_);
    // Nobody waits for the batch any more; it goes back with `job`.
    if (stopping_) return;
    queue_.push_back(std::move(job));
  }
  // All of them, because they share the batch.
  wake_.NotifyAll();
}

void TransformPool::Work() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && queue_.empty()) wake_.Wait(mutex_);
      if (stopping_) return;
      job = queue_.front();
      // The worker that finds nothing left to take retires the job.
      if (job->next_sample.load() >= job->state.sample_count) {
        queue_.pop_front();
        if (job->state.sample_count != 0) continue;
      }
    }
    // No sample's end would report an empty batch, so the worker that has taken it out of the queue
    // does.
    if (job->state.sample_count == 0) {
      FinishJob(*job);
    } else {
      RunJob(*job);
    }
  }
}

void TransformPool::RunJob(Job& job) {
  const std::uint32_t count = job.state.sample_count;
  for (;;) {
    const std::uint32_t first = job.next_sample.fetch_add(kSamplesPerTurn);
    if (first >= count) return;
    const std::uint32_t turn = std::min(kSamplesPerTurn, count - first);
    for (std::uint32_t sample = first; sample < first + turn; ++sample) {
      Status status = RunSample(job, sample);
      if (!status) {
        MutexLock lock(job.mutex);
        if (!job.error) job.error = std::move(status.error());
      }
    }
    // The counter also orders memory: who brings it to 0 sees what all other workers have written.
    if (job.samples_left.fetch_sub(turn) == turn) FinishJob(job);
  }
}

Status TransformPool::RunSample(const Job& job, std::uint32_t sample) const {
  const SampleId id = job.state.sample_ids[sample];
  const TransformInput input = {
      .batch = job.batch,
      .index = sample,
      .sample = id,
      .seed = TransformSeed(options_.seed, job.state.epoch, id),
      .output = std::span(job.state.transformed)
                    .subspan(std::size_t{sample} * options_.output_bytes, options_.output_bytes)};
  // The hook is foreign code on our thread, where an exception that escapes ends the whole program.
  try {
    return options_.transform(input);
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::kInternal, "the transform threw on sample " +
                                           std::to_string(id.value()) + ": " + thrown.what());
  } catch (...) {
    // C++ lets a hook throw any type, and only a std::exception says what happened.
    return Error(ErrorCode::kInternal, "the transform threw on sample " +
                                           std::to_string(id.value()) +
                                           ": something that is no std::exception");
  }
}

void TransformPool::FinishJob(Job& job) {
  Status status;
  {
    MutexLock lock(job.mutex);
    if (job.error) status = *job.error;
  }
  options_.done(&job.state, std::move(status));
}

}  // namespace forebay::internal
