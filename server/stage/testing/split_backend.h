// SplitBackend: one file system of which two parts fail independently: what lies beneath the
// GFS, and everything else. Part of forebay::stage_testing.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/io/io_backend.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"

namespace forebay::stage {

// Directories whose path begins with `gfs_path` fail as `gfs` says, all others as `local` says.
// Both may be one injector. Everything is borrowed. Thread-safe as `inner` is.
class SplitBackend final : public io::IoBackend {
 public:
  SplitBackend(io::IoBackend& inner, std::string gfs_path, io::FaultInjector& gfs,
               io::FaultInjector& local)
      : gfs_path_(std::move(gfs_path)), gfs_(inner, gfs), local_(inner, local) {}

  std::string_view name() const override { return "split"; }
  Result<std::unique_ptr<io::Directory>> OpenDirectory(std::string_view path) override;
  Result<std::unique_ptr<io::IoQueue>> CreateQueue(const io::QueueOptions& options) override;

 private:
  const std::string gfs_path_;
  io::FaultyBackend gfs_;
  io::FaultyBackend local_;
};

}  // namespace forebay::stage
