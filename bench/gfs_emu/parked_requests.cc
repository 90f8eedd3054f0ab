#include "bench/gfs_emu/parked_requests.h"

#include <cerrno>
#include <utility>

namespace forebay::bench {

void ParkedRequests::Park(fuse_req_t request, std::function<void()> resume) {
  // Before the request can be found by others, because they may answer it, which ends its life.
  // An interrupt that comes in between finds nothing, and is seen below.
  fuse_req_interrupt_func(request, OnInterrupt, this);
  bool is_interrupted = false;
  {
    const std::lock_guard lock(mutex_);
    is_interrupted = fuse_req_interrupted(request) != 0;
    if (!is_interrupted) parked_.emplace(request, std::move(resume));
  }
  if (is_interrupted) fuse_reply_err(request, EINTR);
}

void ParkedRequests::OnInterrupt(fuse_req_t request, void* parked_requests) {
  auto& self = *static_cast<ParkedRequests*>(parked_requests);
  {
    const std::lock_guard lock(self.mutex_);
    if (self.parked_.erase(request) == 0) return;
  }
  fuse_reply_err(request, EINTR);
}

ParkedRequests::Parked ParkedRequests::TakeAll() {
  const std::lock_guard lock(mutex_);
  return std::exchange(parked_, {});
}

void ParkedRequests::ResumeAll() {
  for (const auto& [request, resume] : TakeAll()) resume();
}

void ParkedRequests::FailAll(int error_number) {
  for (const auto& [request, resume] : TakeAll()) fuse_reply_err(request, error_number);
}

}  // namespace forebay::bench
