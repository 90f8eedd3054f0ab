// FolderLock: one run at a time writes checkpoints to a folder.
#pragma once

#include <filesystem>
#include <optional>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::train {

// Holds a lock on the file `.lock` in a folder until it is destroyed. If the process dies, the
// kernel releases the lock. It is a lock of flock: it works between the processes of a node, and
// between nodes if the file system supports that (NFS 4; Lustre mounted with `flock`).
class FolderLock {
 public:
  // Takes the lock of a folder that exists. kFailedPrecondition if another process holds it; the
  // message names the folder, and host and process if they can be read. nullopt if the file system
  // has no locks: then nothing keeps two runs apart.
  static Result<std::optional<FolderLock>> Take(const std::filesystem::path& folder);
  // Removes the file.
  ~FolderLock();
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  FolderLock(std::filesystem::path path, UniqueFd fd);

  std::filesystem::path path_;
  UniqueFd fd_;  // not valid once moved from
};

}  // namespace forebay::train
