// ParkedRequests: requests of the kernel that a fault leaves without an answer.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "bench/gfs_emu/gfs_operations.h"

namespace forebay::bench {

// The thread that made a request, and its process.
class Requester {
 public:
  explicit Requester(pid_t thread_id);
  // True where it is gone, or is to end before it returns from the kernel.
  bool IsBeingKilled() const;

 private:
  pid_t thread_id_;
  pid_t process_id_;
};

// A parked request holds no thread, so any number of them leaves the mount usable. Each is
// answered once: by ResumeBefore or FailAll, or with EINTR once its client is being killed, so that
// it can die. Other signals leave it waiting, as a hard mount does. Thread-safe.
class ParkedRequests {
 public:
  ParkedRequests();
  // Nothing is parked any more: FailAll was called, and no request arrives.
  ~ParkedRequests() = default;

  // `resume` carries the request out and answers it. It may be called on any thread: by this call
  // where the faults were cleared since the request met its own (Fault::clear_count).
  void Park(fuse_req_t request, std::uint64_t clear_count, std::function<void()> resume);
  // Carries out, one after another, those that met their faults before these were cleared for the
  // `clear_count`th time, and those that are yet to be parked.
  void ResumeBefore(std::uint64_t clear_count);
  // Answers all that are parked now with an errno.
  void FailAll(int error_number);

 private:
  struct Parked {
    Requester requester;
    std::uint64_t clear_count = 0;
    std::function<void()> resume;
  };
  using Requests = std::unordered_map<fuse_req_t, Parked>;

  // Looks after clients that are being killed, for as long as something is parked.
  void Watch(const std::stop_token& stop);
  Requests TakeAll();

  std::mutex mutex_;
  std::condition_variable_any parked_;
  Requests requests_;
  std::uint64_t resumed_before_ = 0;
  std::jthread watch_;  // last: it uses the others
};

}  // namespace forebay::bench
