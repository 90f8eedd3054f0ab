// FolderLock: one run at a time writes checkpoints to a folder.
#pragma once

#include <filesystem>
#include <optional>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::train {

// Holds the file `.lock` in a folder until it is destroyed; a process that dies lets go of it, too.
// The lock is flock's: it holds between the processes of a node, and between nodes where the file
// system says so (NFS 4; Lustre mounted with `flock`).
class FolderLock {
 public:
  // The folder is there. kFailedPrecondition where another process has it: the message names the
  // folder, and host and process where they can be read. nullopt where the file system has no
  // locks: then nothing keeps two runs apart.
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
