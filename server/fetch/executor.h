// Executor: where batches are put together. Threads in the daemon, hand-cranked in tests.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::fetch {

// Work to be done on some worker thread; the queue is that thread's own.
using Task = std::function<void(io::IoQueue&)>;

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` later, once. Thread-safe, never runs it within the call. Tasks are few: each
  // stream has at most as many as it has credits.
  virtual void Post(Task task) = 0;
};

// A fixed number of threads, first in first out.
class ThreadExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<ThreadExecutor>> Create(io::IoBackend& backend,
                                                        std::uint32_t threads,
                                                        std::size_t queue_depth);
  // Finishes what runs; drops what waits.
  ~ThreadExecutor() override;
  void Post(Task task) override;

 private:
  ThreadExecutor() = default;
  void Run(io::IoQueue& queue);

  std::mutex mutex_;
  std::condition_variable work_;
  bool stopping_ = false;
  std::deque<Task> tasks_;
  std::vector<std::unique_ptr<io::IoQueue>> queues_;
  std::vector<std::jthread> threads_;
};

}  // namespace forebay::fetch
