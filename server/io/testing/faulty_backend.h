// FaultyBackend: injects faults on top of any back end. Part of forebay::io_testing, never of a
// production target. io_uring cannot be intercepted from outside, so faults enter at our interface.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/io/testing/fault_injector.h"

namespace forebay::io {

// Passes every call to `inner`, except those that the injector picks. Both are borrowed and must
// outlive this. As thread-safe as `inner`. Unlike real queues, its queues allocate per operation.
class FaultyBackend final : public IoBackend {
 public:
  FaultyBackend(IoBackend& inner, FaultInjector& injector);

  std::string_view name() const override { return name_; }  // "faulty(<inner>)"
  Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) override;
  // A destroyed queue drops what is stalled in it instead of waiting for the release.
  Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) override;

 private:
  IoBackend& inner_;
  FaultInjector& injector_;
  const std::string name_;
};

}  // namespace forebay::io
