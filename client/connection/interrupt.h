// Interrupt: ends, from another thread, what a thread waits for while it connects to a daemon.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include <grpcpp/client_context.h>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"

namespace forebay::internal {

// Thread-safe. Without a descriptor (the process has too many) only the wait for a handshake is
// not ended early.
class Interrupt {
 public:
  // For good.
  void Raise() {
    is_raised_ = true;
    const std::uint64_t one = 1;
    if (fd_.valid()) static_cast<void>(!::write(fd_.get(), &one, sizeof(one)));
    const MutexLock lock(mutex_);
    if (call_ != nullptr) call_->TryCancel();
  }
  bool is_raised() const { return is_raised_; }
  // Readable once it is raised; -1: there is none.
  int fd() const { return fd_.get(); }
  static Error Raised() { return Error(ErrorCode::kCancelled, "the reader has cancelled this"); }

  // Cancels a call if the interrupt is raised while this object lives. One call at a time.
  class Guarded {
   public:
    // `interrupt`: null: nothing cancels the call.
    Guarded(Interrupt* interrupt, grpc::ClientContext& call) : interrupt_(interrupt) {
      if (interrupt_ == nullptr) return;
      const MutexLock lock(interrupt_->mutex_);
      interrupt_->call_ = &call;
      // Raise may have come before.
      if (interrupt_->is_raised_) call.TryCancel();
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    ~Guarded() {
      if (interrupt_ == nullptr) return;
      const MutexLock lock(interrupt_->mutex_);
      interrupt_->call_ = nullptr;
    }

   private:
    Interrupt* const interrupt_;
  };

 private:
  std::atomic<bool> is_raised_ = false;
  const UniqueFd fd_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Mutex mutex_;
  grpc::ClientContext* call_ FOREBAY_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace forebay::internal
