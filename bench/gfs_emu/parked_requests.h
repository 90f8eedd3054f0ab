// ParkedRequests: requests of the kernel that a fault leaves without an answer.
#pragma once

#include <sys/types.h>

#include <condition_variable>
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
// answered once: by ResumeAll or FailAll, or with EINTR once its client is being killed, so that
// it can die. Other signals leave it waiting, as a hard mount does. Thread-safe.
class ParkedRequests {
 public:
  ParkedRequests();
  // Nothing is parked any more: FailAll was called, and no request arrives.
  ~ParkedRequests() = default;

  // `resume` carries the request out and answers it. It may be called on any thread.
  void Park(fuse_req_t request, std::function<void()> resume);
  // Carries out all that are parked now, one after another.
  void ResumeAll();
  // Answers all that are parked now with an errno.
  void FailAll(int error_number);

 private:
  struct Parked {
    Requester requester;
    std::function<void()> resume;
  };
  using Requests = std::unordered_map<fuse_req_t, Parked>;

  // Looks after clients that are being killed, for as long as something is parked.
  void Watch(const std::stop_token& stop);
  Requests TakeAll();

  std::mutex mutex_;
  std::condition_variable_any parked_;
  Requests requests_;
  std::jthread watch_;  // last: it uses the others
};

}  // namespace forebay::bench
