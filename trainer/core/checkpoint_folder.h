// CheckpointFolder: the checkpoints of one run, each a folder named by its global step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint.h"

namespace forebay::train {

// Where the shards of step `step` are written until they are published: no reader looks there.
std::filesystem::path UnpublishedFolder(const std::filesystem::path& folder, std::uint64_t step);

// Used by one process of the run at a time (rank 0). Not thread-safe.
class CheckpointFolder {
 public:
  // Creates the folder and removes what a crash left unpublished in it. `kept`, at least 1, is
  // how many checkpoints stay.
  static Result<CheckpointFolder> Open(std::filesystem::path folder, std::uint64_t kept);

  const std::filesystem::path& path() const { return folder_; }

  // Writes the manifest beside the shards in UnpublishedFolder of its step, which must be there
  // and as long as it says, gives the whole its name, which is when it begins to exist, and
  // removes all but the newest. Survives a crash once it has returned. Returns its path.
  Result<std::filesystem::path> Publish(const Manifest& manifest);
  // Removes what Publish would have published.
  void Abandon(std::uint64_t step);

 private:
  CheckpointFolder(std::filesystem::path folder, std::uint64_t kept)
      : folder_(std::move(folder)), kept_(kept) {}

  std::filesystem::path folder_;
  std::uint64_t kept_;
};

// The intact checkpoint of the highest step in `folder`, every byte of it checked; nullopt where
// there is none. Each damaged one passed over adds a line to `skipped`.
Result<std::optional<std::filesystem::path>> NewestCheckpoint(
    const std::filesystem::path& folder, std::vector<std::string>& skipped);

// The checkpoint that `path` means: itself, the one whose manifest it is, or the newest intact
// one in it. kNotFound, or VerifyCheckpoint's errors.
Result<std::filesystem::path> FindCheckpoint(const std::filesystem::path& path,
                                             std::vector<std::string>& skipped);

}  // namespace forebay::train
