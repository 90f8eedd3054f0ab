// BoundedDirectory: a read-only directory whose calls fail after a deadline. `forebayd --check`
// looks at data sets through it, because a data set may have millions of files.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"

namespace forebay::stage {

// Opens files for reading, and looks at files and folders. A call that begins after `deadline_ns`
// (of `clock`) fails with kDeadlineExceeded; a call that is under way then is not interrupted.
// Calls that would change something fail with kUnimplemented. Thread-safe; borrows `clock`.
class BoundedDirectory final : public io::Directory {
 public:
  BoundedDirectory(std::unique_ptr<io::Directory> inner, const io::Clock& clock,
                   std::int64_t deadline_ns)
      : inner_(std::move(inner)), clock_(clock), deadline_ns_(deadline_ns) {}

  Result<std::unique_ptr<io::File>> Open(std::string_view path, io::OpenMode mode) override;
  Result<io::FileInfo> Stat(std::string_view path) override;
  Result<std::vector<io::DirectoryEntry>> List(std::string_view path) override;
  Status MakeDirectory(std::string_view) override { return Refusal(); }
  Status Rename(std::string_view, std::string_view) override { return Refusal(); }
  Status Unlink(std::string_view) override { return Refusal(); }
  Status RemoveDirectory(std::string_view) override { return Refusal(); }
  Status Sync(std::string_view) override { return Refusal(); }
  Result<Space> FreeSpace() override { return inner_->FreeSpace(); }

  // Number of files that were looked at.
  std::uint64_t stats() const { return stats_.load(); }

 private:
  static Error Refusal();
  Status CheckTime() const;

  const std::unique_ptr<io::Directory> inner_;
  const io::Clock& clock_;
  const std::int64_t deadline_ns_;
  std::atomic<std::uint64_t> stats_ = 0;
};

}  // namespace forebay::stage
