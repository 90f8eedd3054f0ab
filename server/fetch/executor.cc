#include "server/fetch/executor.h"

#include <utility>

namespace forebay::fetch {

Result<std::unique_ptr<ThreadExecutor>> ThreadExecutor::Create(io::IoBackend& backend,
                                                               std::uint32_t threads,
                                                               std::size_t queue_depth) {
  if (threads == 0) {
    return Error(ErrorCode::kInvalidArgument, "an executor without threads runs nothing");
  }
  std::unique_ptr<ThreadExecutor> executor(new ThreadExecutor());
  for (std::uint32_t i = 0; i < threads; ++i) {
    FOREBAY_ASSIGN(auto queue, backend.CreateQueue({.depth = queue_depth}));
    executor->queues_.push_back(std::move(queue));
  }
  for (auto& queue : executor->queues_) {
    executor->threads_.emplace_back([raw = executor.get(), &queue] { raw->Run(*queue); });
  }
  return executor;
}

ThreadExecutor::~ThreadExecutor() {
  std::deque<Task> dropped;  // destroyed after the lock: tasks own streams
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  work_.notify_all();
  threads_.clear();
}

void ThreadExecutor::Post(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  work_.notify_one();
}

void ThreadExecutor::Run(io::IoQueue& queue) {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(queue);
  }
}

}  // namespace forebay::fetch
