// The pool and its queues. Each operation is a Job in a slot of its queue; the pool's list and the
// queue's list of completions link jobs through a pointer in the job itself, so that nothing is
// allocated per operation. Two locks: the pool's for jobs, a queue's for completions; never both.
#include "server/io/queues/thread_backend.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/posix/posix_directory.h"
#include "server/io/queues/operation_rules.h"
#include "server/io/queues/transfer.h"

namespace forebay::io {
namespace {

class ThreadQueue;

// An operation from Submit to its completion. Linked through `next` into one list at a time:
// the pool's jobs, then its queue's completions; so nothing is allocated per operation.
struct Job {
  Transfer transfer;
  std::optional<Result<std::uint64_t>> outcome;
  ThreadQueue* queue = nullptr;
  Job* next = nullptr;
};

// An intrusive list, first in, first out. Not thread-safe.
class JobList {
 public:
  bool empty() const { return first_ == nullptr; }
  // `last_` is not read while the list is empty, so Pop need not reset it.
  void Push(Job* job) {
    job->next = nullptr;
    if (first_ == nullptr) first_ = job; else last_->next = job;
    last_ = job;
  }
  Job* Pop() {
    Job* job = first_;
    first_ = job->next;
    return job;
  }

 private:
  Job* first_ = nullptr;
  Job* last_ = nullptr;
};

// Makes the system call for the rest of a transfer. Returns bytes or a negative errno, as io_uring
// does.
std::int64_t AskKernel(const Transfer& transfer) {
  // The cast to off_t is safe: CheckOperations has bounded the end of the transfer.
  const int fd = transfer.file->fd();
  const auto offset = static_cast<off_t>(transfer.next_offset());
  ssize_t answer = 0;
  switch (transfer.kind) {
    case OpKind::kRead:
      answer = ::pread(fd, transfer.next_memory(), transfer.next_bytes(), offset);
      break;
    case OpKind::kWrite:
      answer = ::pwrite(fd, transfer.next_memory(), transfer.next_bytes(), offset);
      break;
    case OpKind::kDataSync: answer = ::fdatasync(fd); break;
  }
  // errno is read before any other call can change it.
  return answer >= 0 ? answer : -errno;
}

}  // namespace

// The threads and their list of jobs, first in, first out. One pool serves all queues.
class ThreadPool {
 public:
  ThreadPool() = default;
  ~ThreadPool() { Stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  Status Start(std::size_t count);
  void Add(std::vector<Job>& slots, std::span<const std::uint32_t> taken);

 private:
  void Stop();
  void Work();

  Mutex mutex_;
  CondVar changed_;
  JobList jobs_ FOREBAY_GUARDED_BY(mutex_);
  bool is_stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

namespace {

// Slots and completions of one queue. The submitting thread uses slots_ and free_ without a lock;
// the pool reaches a slot only between Add and Finish.
class ThreadQueue final : public IoQueue {
 public:
  ThreadQueue(ThreadPool& pool, std::size_t depth) : pool_(pool), slots_(depth) {
    free_.reserve(depth);
    // The list is in descending order, so that slot 0 is the first to be taken: a queue that is
    // used with one operation at a time always uses the same memory.
    for (std::size_t i = depth; i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
    for (Job& job : slots_) job.queue = this;
  }
  ~ThreadQueue() override {
    std::vector<Completion> dropped;
    // The threads may still write into the memory of these operations, so the queue outlives them.
    // Their results are dropped.
    while (in_flight() > 0) Wait(in_flight(), dropped, std::nullopt);
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  Status Submit(std::span<const Operation> operations) override {
    FOREBAY_TRY(CheckOperations(operations, {in_flight(), depth()}));
    // The last entries of the free list are the slots of this batch. They are removed only after
    // the pool has them, because Add cannot fail.
    const std::size_t left = free_.size() - operations.size();
    for (std::size_t i = 0; i < operations.size(); ++i) {
      slots_[free_[left + i]].transfer = TransferOf(operations[i]);
    }
    pool_.Add(slots_, std::span(free_).subspan(left));
    free_.resize(left);
    return {};
  }

  std::size_t Wait(std::size_t count_min, std::vector<Completion>& completions,
                   std::optional<std::int64_t> timeout_ms) override {
    // To wait for more completions than are in flight would never end.
    const std::size_t wanted = std::min(count_min, in_flight());
    MutexLock lock(mutex_);
    // Finish notifies only when so many are done, so a thread that waits for 64 wakes once.
    wanted_count_ = wanted;
    const auto is_enough = [this]() FOREBAY_REQUIRES(mutex_) {
      return done_count_ >= wanted_count_;
    };
    if (timeout_ms.has_value()) {
      // The condition variable adds the timeout to a clock, which a huge one would overflow.
      constexpr std::int64_t kTimeoutMsMax = 1'000'000'000;
      const std::chrono::milliseconds timeout(std::min(*timeout_ms, kTimeoutMsMax));
      done_changed_.WaitFor(mutex_, timeout, is_enough);
    } else {
      while (!is_enough()) done_changed_.Wait(mutex_);
    }
    // All completions are taken, not only those that were waited for: the caller has room for them,
    // and their slots are free at once.
    const std::size_t count = done_count_;
    for (; done_count_ > 0; --done_count_) {
      Job* job = done_.Pop();
      completions.push_back({job->transfer.tag, *std::move(job->outcome)});
      free_.push_back(static_cast<std::uint32_t>(job - slots_.data()));  // the slot's index
    }
    return count;
  }

  std::size_t in_flight() const override { return slots_.size() - free_.size(); }
  std::size_t depth() const override { return slots_.size(); }


  // Called by the pool. Notifies under the lock: afterwards the owner may destroy the queue.
  void Finish(Job* job) {
    MutexLock lock(mutex_);
    done_.Push(job);
    if (++done_count_ >= wanted_count_) done_changed_.NotifyOne();
  }

 private:
  ThreadPool& pool_;
  std::vector<Job> slots_;
  std::vector<std::uint32_t> free_;
  Mutex mutex_;
  CondVar done_changed_;
  JobList done_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t done_count_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::size_t wanted_count_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Status ThreadPool::Start(std::size_t count) {
  try {
    // The list is allocated first, so that no failed allocation can lose a thread that has started.
    threads_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    // Threads that did start end in the destructor.
    return Error(ErrorCode::kResourceExhausted,
                 "start " + std::to_string(count) + " I/O threads: " + error.what(),
                 error.code().value());
  }
  return {};
}

void ThreadPool::Stop() {
  {
    MutexLock lock(mutex_);
    // All queues are gone by now, and with them their jobs: a queue waits for its own operations.
    is_stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Add(std::vector<Job>& slots, std::span<const std::uint32_t> taken) {
  {
    MutexLock lock(mutex_);
    for (const std::uint32_t slot : taken) jobs_.Push(&slots[slot]);
  }
  // One wake-up per job, and no more than there are threads; NotifyAll would wake all for one job.
  for (std::size_t i = 0; i < std::min(taken.size(), threads_.size()); ++i) changed_.NotifyOne();
}

void ThreadPool::Work() {
  UniqueLock lock(mutex_);
  while (true) {
    while (!is_stopping_ && jobs_.empty()) changed_.Wait(mutex_);
    if (jobs_.empty()) return;  // stopping; jobs that are left are finished first
    Job* job = jobs_.Pop();
    lock.Unlock();  // the system calls run without the lock
    // A short or interrupted transfer is continued by the same thread. To queue it again would put
    // it behind all others and leave a read half done for long.
    do {
      job->outcome = Advance(job->transfer, AskKernel(job->transfer));
    } while (!job->outcome);
    // The last use of the job by this thread: its queue may hand the slot to another operation now.
    job->queue->Finish(job);
    lock.Lock();
  }
}

ThreadBackend::ThreadBackend(const ThreadBackendOptions& options,
                             std::unique_ptr<ThreadPool> pool)
    : options_(options), pool_(std::move(pool)) {}

ThreadBackend::~ThreadBackend() = default;

Result<std::unique_ptr<ThreadBackend>> ThreadBackend::Create(
    const ThreadBackendOptions& options) {
  if (options.threads == 0 || options.threads > limits::kIoThreadsMax) {
    return Error(ErrorCode::kInvalidArgument,
                 std::to_string(options.threads) + " I/O threads: must be 1 to kIoThreadsMax=" +
                     std::to_string(limits::kIoThreadsMax));
  }
  auto pool = std::make_unique<ThreadPool>();
  FOREBAY_TRY(pool->Start(options.threads));
  return std::unique_ptr<ThreadBackend>(new ThreadBackend(options, std::move(pool)));
}

Result<std::unique_ptr<Directory>> ThreadBackend::OpenDirectory(std::string_view path) {
  return PosixDirectory::Create(path, {.method = options_.resolve_method});
}

Result<std::unique_ptr<IoQueue>> ThreadBackend::CreateQueue(const QueueOptions& options) {
  FOREBAY_TRY(CheckQueueOptions(options));
  return std::make_unique<ThreadQueue>(*pool_, options.depth);
}

}  // namespace forebay::io
