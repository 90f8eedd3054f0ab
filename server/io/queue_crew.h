// QueueCrew: a group of threads, each with its own I/O queue. While some of them are blocked in
// calls that do not return, spare threads take their place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/io_backend.h"

namespace forebay::io {

// Thread-safe, except that only one thread at a time may call AdjustTo.
class QueueCrew {
 public:
  struct Options {
    std::uint32_t threads = 1;
    std::size_t queue_depth = 32;
  };
  // The function that each thread runs. It returns when its owner tells it to, or when Dismisses
  // returned true.
  using Body = std::function<void(QueueCrew&, IoQueue&)>;

  // Starts all threads, or none on an error. `backend` is borrowed.
  static Result<std::unique_ptr<QueueCrew>> Create(IoBackend& backend, const Options& options,
                                                   Body body);
  // Waits for the threads. The owner must have told them to return.
  ~QueueCrew();

  // How many of `threads` belong to this crew.
  std::uint32_t CountOf(std::span<const std::thread::id> threads) const;
  // Sets the number of spare threads to `blocked`, the number of blocked threads of the crew, but
  // at most to Options::threads. Starts missing threads; surplus ones end at their next Dismisses.
  // An error: a thread or its queue could not be created.
  Status AdjustTo(std::uint32_t blocked);
  std::uint32_t spare() const;  // wanted number of spare threads
  // To be called by the body between two jobs. True: this thread is surplus, and the body must
  // return. A body that was woken for work must wake another thread before it returns.
  bool Dismisses();

  // Call after the threads were told to return: waits until all have. False if some have not after
  // `wait`. Objects that these threads use must then not be destroyed, so the process has to exit
  // without destructors.
  bool AwaitEnd(std::chrono::milliseconds wait);

 private:
  struct Member {
    bool has_returned = false;
    std::unique_ptr<IoQueue> queue;
    std::jthread thread;  // last: joined before its queue goes
  };

  QueueCrew(IoBackend& backend, const Options& options, Body body)
      : backend_(backend), options_(options), body_(std::move(body)), wanted_(options.threads) {}
  Status Add();
  void RunMember(Member& member);

  IoBackend& backend_;
  const Options options_;
  const Body body_;
  mutable Mutex mutex_;
  CondVar begins_;
  bool has_begun_ FOREBAY_GUARDED_BY(mutex_) = false;  // all threads exist
  bool is_given_up_ FOREBAY_GUARDED_BY(mutex_) = false;
  CondVar returned_;
  std::uint32_t wanted_ FOREBAY_GUARDED_BY(mutex_);
  std::uint32_t active_ FOREBAY_GUARDED_BY(mutex_) = 0;  // threads that have not been dismissed
  std::list<Member> members_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::io
