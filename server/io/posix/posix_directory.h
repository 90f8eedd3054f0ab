// PosixDirectory: the Directory of both real back ends, over a directory of the kernel.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/unique_fd.h"
#include "server/io/io_backend.h"
#include "server/io/posix/path_resolver.h"

namespace forebay::io {

struct PosixDirectoryOptions {
  std::optional<ResolveMethod> method;  // unset: detected
  std::size_t list_entries_max = limits::kObjectCountMax;
};

// Holds its root open, so renaming the root has no effect. Opens only regular files: a FIFO,
// socket, device or directory is kInvalidArgument, and opening it never blocks. New files have
// mode 0600. Thread-safe, because no state changes after construction.
class PosixDirectory final : public Directory {
 public:
  static Result<std::unique_ptr<PosixDirectory>> Create(
      std::string_view path, const PosixDirectoryOptions& options = {});

  Result<std::unique_ptr<File>> Open(std::string_view path, OpenMode mode) override;
  Result<FileInfo> Stat(std::string_view path) override;
  Result<std::vector<DirectoryEntry>> List(std::string_view path) override;
  Status MakeDirectory(std::string_view path) override;
  Status Rename(std::string_view from, std::string_view to) override;
  Status Unlink(std::string_view path) override;
  Status RemoveDirectory(std::string_view path) override;
  Status Sync(std::string_view path) override;
  Result<Space> FreeSpace() override;

  ResolveMethod method() const { return method_; }

 private:
  // The open parent directory of a path's last component, and that component.
  struct Leaf {
    UniqueFd parent;
    std::string name;
  };

  PosixDirectory(UniqueFd root, ResolveMethod method, std::size_t list_entries_max)
      : root_(std::move(root)), method_(method), list_entries_max_(list_entries_max) {}
  Result<Leaf> OpenLeaf(std::string_view path) const;
  Status ResolveType(int directory_fd, std::string_view directory, DirectoryEntry& entry) const;
  Status RemoveLeaf(std::string_view path, int flags) const;

  const UniqueFd root_;
  const ResolveMethod method_;
  const std::size_t list_entries_max_;
};

}  // namespace forebay::io
