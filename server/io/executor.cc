// A queue of tasks and a QueueCrew that runs them in order. Tasks that wait when the executor stops
// are dropped and not run: their streams end too. The list has no bound of its own: who
// posts tasks bounds them, as credits bound those for the batches of a stream.
#include "server/io/executor.h"

#include <utility>

namespace forebay::io {

Result<std::unique_ptr<ThreadExecutor>> ThreadExecutor::Create(IoBackend& backend,
                                                               std::uint32_t threads,
                                                               std::size_t queue_depth) {
  if (threads == 0) {
    return Error(ErrorCode::kInvalidArgument, "an executor needs at least one thread");
  }
  // A raw pointer is safe: the crew is a member, and its threads end in the destructor.
  std::unique_ptr<ThreadExecutor> executor(new ThreadExecutor());
  FOREBAY_ASSIGN(executor->crew_,
                 QueueCrew::Create(
                     backend, {.threads = threads, .queue_depth = queue_depth},
                     [raw = executor.get()](QueueCrew& crew, IoQueue& queue) {
                       raw->Run(crew, queue);
                     }));
  return executor;
}

ThreadExecutor::~ThreadExecutor() {
  // BeginStop comes first, because the threads return only once they see stopping_. The crew then
  // joins them, before the members that they use are destroyed.
  BeginStop();
  crew_.reset();
}

void ThreadExecutor::BeginStop() {
  std::deque<Task> dropped;  // destroyed after the lock: tasks own streams
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  work_.NotifyAll();
}

void ThreadExecutor::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;  // the task is dropped, as waiting tasks were
    tasks_.push_back(std::move(task));
  }
  // The lock is released first, so that the thread that wakes up does not have to wait for this
  // one.
  work_.NotifyOne();
}

void ThreadExecutor::Run(QueueCrew& crew, IoQueue& queue) {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      // Asked before a task is taken, so that a surplus thread takes none with it.
      if (crew.Dismisses()) return;
      while (!stopping_ && tasks_.empty()) work_.Wait(mutex_);
      // Stopping wins over waiting tasks. BeginStop has taken them from the list, so none is left
      // behind.
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    // A task runs without the lock, because it reads files and posts further tasks.
    task(queue);
  }
}

}  // namespace forebay::io
