#include "bench/gfs_emu/parked_requests.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace forebay::bench {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(50);

}  // namespace

bool IsBeingKilled(pid_t thread_id) {
  std::ifstream status("/proc/" + std::to_string(thread_id) + "/status");
  // The kernel gives SIGKILL to every thread of a process that it ends, for whatever reason.
  for (std::string word; status >> word;) {
    if (word != "SigPnd:") continue;
    std::uint64_t pending = 0;
    status >> std::hex >> pending;
    return (pending >> (SIGKILL - 1) & 1U) != 0;
  }
  return true;
}

ParkedRequests::ParkedRequests()
    : watch_([this](const std::stop_token& stop) { Watch(stop); }) {}

void ParkedRequests::Park(fuse_req_t request, std::function<void()> resume) {
  const pid_t thread_id = fuse_req_ctx(request)->pid;
  {
    const std::lock_guard lock(mutex_);
    requests_.emplace(request, Parked{.thread_id = thread_id, .resume = std::move(resume)});
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
      if (IsBeingKilled(parked.thread_id)) ended.push_back(request);
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

void ParkedRequests::ResumeAll() {
  for (const auto& [request, parked] : TakeAll()) parked.resume();
}

void ParkedRequests::FailAll(int error_number) {
  for (const auto& [request, parked] : TakeAll()) fuse_reply_err(request, error_number);
}

}  // namespace forebay::bench
