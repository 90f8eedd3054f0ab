// SelectBackend: chooses the back end of a daemon, io_uring or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::io {

enum class BackendChoice : std::uint8_t {
  kAutomatic,  // io_uring, or threads if io_uring is refused
  kIoUring,
  kThreads,
};

struct SelectedBackend {
  std::unique_ptr<IoBackend> backend;
  // Why kAutomatic fell back to threads; the daemon reports it in its log and status.
  std::optional<Error> fallback_reason;
};

// Fails if the named back end cannot run, or none can. `threads` is the size of the thread back
// end's pool; each of its threads can be blocked by a call that does not return.
Result<SelectedBackend> SelectBackend(BackendChoice choice, std::size_t threads = 8);

}  // namespace forebay::io
