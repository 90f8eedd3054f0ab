// A hung request is a map entry and no thread, so the mount goes on serving others. One thread
// looks every 50 ms whether the client of a parked request is being killed, because FUSE has no
// event for that; then the request is answered with EINTR and the client can die.
#include "bench/gfs_emu/parked_requests.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace forebay::bench {
namespace {

// Short against the patience of a test that kills a client, long against the cost of reading /proc.
constexpr std::chrono::milliseconds kBetweenLooks(50);

// What the kernel says of a thread, or of a process by its number.
struct TaskStatus {
  char state = 'X';  // dead, as of one that is not there
  pid_t process_id = 0;
  std::uint64_t pending = 0;  // its signals, by bit

  bool is_gone() const { return state == 'X' || state == 'Z'; }
  // The kernel gives SIGKILL to every thread of a process that it ends, for whatever reason.
  bool is_being_killed() const { return (pending >> (SIGKILL - 1) & 1U) != 0; }
};

TaskStatus StatusOf(pid_t id) {
  TaskStatus task;
  std::ifstream status("/proc/" + std::to_string(id) + "/status");
  for (std::string word; status >> word;) {
    if (word == "State:") status >> task.state;
    if (word == "Tgid:") status >> task.process_id;
    // SigPnd has the signals of this thread alone. SIGKILL is among them (is_being_killed); signals
    // for the process as a whole are not.
    if (word == "SigPnd:") status >> std::hex >> task.pending >> std::dec;
  }
  return task;
}

}  // namespace

Requester::Requester(pid_t thread_id)
    : thread_id_(thread_id), process_id_(StatusOf(thread_id).process_id) {}

bool Requester::IsBeingKilled() const {
  const TaskStatus thread = StatusOf(thread_id_);
  if (!thread.is_gone()) return thread.is_being_killed();
  // A thread that asks without waiting, such as io_uring's workers do, may be gone long before.
  const TaskStatus process = StatusOf(process_id_);
  return process.is_gone() || process.is_being_killed();
}

ParkedRequests::ParkedRequests()
    : watch_([this](const std::stop_token& stop) { Watch(stop); }) {}

void ParkedRequests::Park(fuse_req_t request, std::uint64_t clear_count,
                          std::function<void()> resume) {
  // Before the lock, because it reads /proc.
  const Requester requester(fuse_req_ctx(request)->pid);
  {
    std::unique_lock lock(mutex_);
    // "clear" was executed after the fault was taken and before this call. Without this, the
    // request would wait for the next clear, which may never come.
    if (clear_count < resumed_before_) {
      lock.unlock();
      resume();
      return;
    }
    requests_.emplace(request, Parked{.requester = requester, .clear_count = clear_count,
                                      .resume = std::move(resume)});
  }
  parked_.notify_all();
}

// The kernel says that a request is interrupted once, and for signals that kill nobody too (such
// as those by which io_uring wakes a thread), so that is no help.
void ParkedRequests::Watch(const std::stop_token& stop) {
  sigset_t all;  // are for the thread that ends the session
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    parked_.wait(lock, stop, [this] { return !requests_.empty(); });
    std::vector<fuse_req_t> ended;
    for (const auto& [request, parked] : requests_) {
      // Collected first: fuse_reply_err frees the request, which is the key of the map.
      if (parked.requester.IsBeingKilled()) ended.push_back(request);
    }
    for (const fuse_req_t request : ended) {
      requests_.erase(request);
      fuse_reply_err(request, EINTR);
    }
    parked_.wait_for(lock, stop, kBetweenLooks, [] { return false; });
  }
}

ParkedRequests::Requests ParkedRequests::TakeAll() {
  const std::lock_guard lock(mutex_);
  return std::exchange(requests_, {});
}

void ParkedRequests::ResumeBefore(std::uint64_t clear_count) {
  std::vector<std::function<void()>> resumed;
  {
    const std::lock_guard lock(mutex_);
    // Two clears may come here in any order.
    resumed_before_ = std::max(resumed_before_, clear_count);
    for (auto entry = requests_.begin(); entry != requests_.end();) {
      const bool is_due = entry->second.clear_count < clear_count;
      if (is_due) resumed.push_back(std::move(entry->second.resume));
      entry = is_due ? requests_.erase(entry) : std::next(entry);
    }
  }
  // The lock is not held here, because a resumed request may be parked again, and because it
  // reserves its time in the queues of the model.
  for (const std::function<void()>& resume : resumed) resume();
}

void ParkedRequests::FailAll(int error_number) {
  for (const auto& [request, parked] : TakeAll()) fuse_reply_err(request, error_number);
}

}  // namespace forebay::bench
