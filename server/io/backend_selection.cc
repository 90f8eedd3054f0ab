// Tries io_uring first. Many sites forbid it (seccomp, sysctl kernel.io_uring_disabled), so the
// reason is kept for log and status: the daemon is slower on threads, and an administrator can
// change it.
#include "server/io/backend_selection.h"

#include <utility>

#include "server/io/queues/thread_backend.h"
#include "server/io/queues/uring_backend.h"

namespace forebay::io {

Result<SelectedBackend> SelectBackend(BackendChoice choice, std::size_t threads) {
  SelectedBackend selected;
  if (choice != BackendChoice::kThreads) {
    Result<std::unique_ptr<UringBackend>> uring = UringBackend::Create();
    if (uring.has_value()) {
      selected.backend = std::move(*uring);
      return selected;
    }
    if (choice == BackendChoice::kIoUring) return std::move(uring.error());
    selected.fallback_reason = std::move(uring.error());
  }
  FOREBAY_ASSIGN(selected.backend,
                 ThreadBackend::Create({.threads = threads, .resolve_method = {}}));
  return selected;
}

}  // namespace forebay::io
