// ParkedRequests: requests of the kernel that a fault leaves without an answer.
#pragma once

#include <functional>
#include <mutex>
#include <unordered_map>

#include "bench/gfs_emu/gfs_operations.h"

namespace forebay::bench {

// A parked request holds no thread, so any number of them leaves the mount usable. Each is
// answered once: by ResumeAll or FailAll, or with EINTR when the kernel interrupts it, as it does
// where its client is killed. Thread-safe.
class ParkedRequests {
 public:
  // `resume` carries the request out and answers it. It may be called on any thread.
  void Park(fuse_req_t request, std::function<void()> resume);
  // Carries out all that are parked now, one after another.
  void ResumeAll();
  // Answers all that are parked now with an errno.
  void FailAll(int error_number);

 private:
  using Parked = std::unordered_map<fuse_req_t, std::function<void()>>;

  static void OnInterrupt(fuse_req_t request, void* parked_requests);
  Parked TakeAll();

  std::mutex mutex_;
  Parked parked_;
};

}  // namespace forebay::bench
