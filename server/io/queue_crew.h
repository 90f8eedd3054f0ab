// QueueCrew: threads that each bring an I/O queue of their own, and more of them while some are
// held up in calls that do not return.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::io {

// Thread-safe, but for AdjustTo, which is one thread's at a time.
class QueueCrew {
 public:
  struct Options {
    std::uint32_t threads = 1;
    std::size_t queue_depth = 32;
  };
  // What each thread does, until the crew's owner tells it to return, or Dismisses does.
  using Body = std::function<void(QueueCrew&, IoQueue&)>;

  // Starts the threads, all or none. `backend` is borrowed.
  static Result<std::unique_ptr<QueueCrew>> Create(IoBackend& backend, const Options& options,
                                                   Body body);
  // Waits for the threads, which must have been told to return.
  ~QueueCrew();

  // How many of `threads` are this crew's.
  std::uint32_t CountOf(std::span<const std::thread::id> threads) const;
  // For each of `held_up` threads of the crew, which can do nothing else for now, a spare one is to
  // be there, but never more spare ones than usual ones. Starts them; what is surplus is dismissed.
  // An error: a thread or its queue could not be made.
  Status AdjustTo(std::uint32_t held_up);
  std::uint32_t spare() const;
  // Asked by a body that has nothing under way: true where it is surplus, and has to return. Where
  // it was woken, it wakes another one first: that may have been for work.
  bool Dismisses();

  // After the threads were told to return: waits until they have; false where some have not by
  // then. These hold on to what they use, so the process can only end without them.
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
  mutable std::mutex mutex_;
  std::condition_variable begins_;
  bool has_begun_ = false;  // until then nobody's body is called
  bool is_given_up_ = false;
  std::condition_variable returned_;
  std::uint32_t wanted_;
  std::uint32_t active_ = 0;  // threads that have not been dismissed, or have not returned
  std::list<Member> members_;
};

}  // namespace forebay::io
