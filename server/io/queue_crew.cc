// Starting and ending the threads of a crew. Threads wait until all have started, so that a failure
// to start one leaves no thread that has begun to work. The number of threads is adjusted by
// wanted_: AdjustTo raises it and starts threads, or lowers it, and surplus threads end in
// Dismisses.
#include "server/io/queue_crew.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace forebay::io {

Result<std::unique_ptr<QueueCrew>> QueueCrew::Create(IoBackend& backend, const Options& options,
                                                     Body body) {
  if (options.threads == 0) {
    return Error(ErrorCode::kInvalidArgument, "a QueueCrew needs at least one thread");
  }
  std::unique_ptr<QueueCrew> crew(new QueueCrew(backend, options, std::move(body)));
  Status added;
  for (std::uint32_t i = 0; i < options.threads && added.has_value(); ++i) added = crew->Add();
  {
    MutexLock lock(crew->mutex_);
    (added.has_value() ? crew->has_begun_ : crew->is_given_up_) = true;
  }
  // On an error the crew is destroyed here: its threads see is_given_up_, return, and are joined.
  crew->begins_.NotifyAll();
  FOREBAY_TRY(added);
  return crew;
}

QueueCrew::~QueueCrew() = default;

// Creates a queue and starts a thread for it.
Status QueueCrew::Add() {
  // Created before the lock is taken, because making a ring takes system calls.
  FOREBAY_ASSIGN(auto queue, backend_.CreateQueue({.depth = options_.queue_depth}));
  MutexLock lock(mutex_);
  // The lock is held while the thread starts: it locks too before it reads anything of its member.
  Member& member = members_.emplace_back();
  member.queue = std::move(queue);
  try {
    member.thread = std::jthread([this, &member] { RunMember(member); });
  } catch (const std::system_error& error) {
    members_.pop_back();
    return Error::FromErrno(error.code().value(), "start an I/O thread");
  }
  ++active_;
  return {};
}

void QueueCrew::RunMember(Member& member) {
  {
    MutexLock lock(mutex_);
    while (!has_begun_ && !is_given_up_) begins_.Wait(mutex_);
    if (is_given_up_) return;
  }
  body_(*this, *member.queue);
  // After this the thread only ends, so AdjustTo may join it without waiting long.
  MutexLock lock(mutex_);
  member.has_returned = true;
  returned_.NotifyAll();
}

std::uint32_t QueueCrew::CountOf(std::span<const std::thread::id> threads) const {
  MutexLock lock(mutex_);
  return static_cast<std::uint32_t>(std::ranges::count_if(members_, [&](const Member& member) {
    return std::ranges::find(threads, member.thread.get_id()) != threads.end();
  }));
}

Status QueueCrew::AdjustTo(std::uint32_t blocked) {
  std::uint32_t missing = 0;
  std::list<Member> gone;  // joined at the end, after the lock is released
  {
    MutexLock lock(mutex_);
    for (auto member = members_.begin(); member != members_.end();) {
      const auto next = std::next(member);
      // A list, because threads hold references to their members; splice keeps these valid.
      if (member->has_returned) gone.splice(gone.end(), members_, member);
      member = next;
    }
    // At most as many spare threads as threads: if a whole file system hangs, more threads would
    // only block too.
    wanted_ = options_.threads + std::min(options_.threads, blocked);
    missing = wanted_ - std::min(wanted_, active_);
  }
  // If a thread cannot be started, the next call of AdjustTo tries again, because `active_` counts
  // only those that exist.
  for (std::uint32_t i = 0; i < missing; ++i) FOREBAY_TRY(Add());
  return {};
}

std::uint32_t QueueCrew::spare() const {
  MutexLock lock(mutex_);
  return wanted_ - options_.threads;
}

bool QueueCrew::Dismisses() {
  MutexLock lock(mutex_);
  // Counted under the lock, so that two threads that ask at the same time do not both leave for one
  // surplus. Any thread of the crew may leave; a spare thread is no special one.
  if (active_ <= wanted_) return false;
  --active_;
  return true;
}

bool QueueCrew::AwaitEnd(std::chrono::milliseconds wait) {
  MutexLock lock(mutex_);
  // A thread that is blocked in a call of the kernel cannot be ended, so this wait has a limit, and
  // the owner decides what to do.
  return returned_.WaitFor(mutex_, wait, [this]() FOREBAY_REQUIRES(mutex_) {
    return std::ranges::all_of(members_, &Member::has_returned);
  });
}

}  // namespace forebay::io
