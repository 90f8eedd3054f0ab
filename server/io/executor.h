// Executor: runs the tasks that assemble batches: on threads in the daemon, step by step in tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/io_backend.h"
#include "server/io/queue_crew.h"

namespace forebay::io {

// Work for a worker thread, which passes its own I/O queue.
using Task = std::function<void(IoQueue&)>;

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` once, later and never within this call. Thread-safe. The number of waiting tasks is
  // bounded, because each stream has at most as many as it has credits.
  virtual void Post(Task task) = 0;
};

// A number of threads that run tasks in the order of Post.
class ThreadExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<ThreadExecutor>> Create(IoBackend& backend,
                                                        std::uint32_t threads,
                                                        std::size_t queue_depth);
  // Finishes running tasks; drops waiting ones.
  ~ThreadExecutor() override;
  void Post(Task task) override;

  // `blocked`: threads that are blocked in calls that do not return. Each that belongs to this
  // executor is replaced by a spare one (QueueCrew::AdjustTo).
  Status AdjustTo(std::span<const std::thread::id> blocked) {
    return crew_->AdjustTo(crew_->CountOf(blocked));
  }
  // The destructor's work in two steps, as Stager::BeginStop and AwaitStopped.
  void BeginStop();
  bool AwaitStopped(std::chrono::milliseconds wait) { return crew_->AwaitEnd(wait); }

 private:
  ThreadExecutor() = default;
  void Run(QueueCrew& crew, IoQueue& queue);

  Mutex mutex_;
  CondVar work_;
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ FOREBAY_GUARDED_BY(mutex_);
  std::unique_ptr<QueueCrew> crew_;  // last: its threads end before the members above do
};

}  // namespace forebay::io
