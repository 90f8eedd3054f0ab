// Which real back end a daemon runs on.
#pragma once

#include <memory>
#include <optional>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::io {

enum class BackendChoice : std::uint8_t {
  kAutomatic,  // io_uring, or threads where it is refused
  kIoUring,
  kThreads,
};

struct SelectedBackend {
  std::unique_ptr<IoBackend> backend;
  // Why kAutomatic fell back to threads; the daemon reports it in its log and status.
  std::optional<Error> fallback_reason;
};

// Fails where the named back end cannot run, or none can.
Result<SelectedBackend> SelectBackend(BackendChoice choice);

}  // namespace forebay::io
