// CheckpointFolder: the checkpoints of one run, named by their global step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint.h"

namespace forebay::train {

// Used by one process of the run at a time (rank 0). Not thread-safe.
class CheckpointFolder {
 public:
  // Creates the folder and removes temporary files that a crash left in it. `kept`, at least
  // 1, is how many checkpoints stay.
  static Result<CheckpointFolder> Open(std::filesystem::path folder, std::uint64_t kept);

  // Writes the checkpoint of its global step, then removes all but the newest. Returns its path.
  Result<std::filesystem::path> Save(const Checkpoint& checkpoint);

  struct Found {
    std::filesystem::path path;
    Checkpoint checkpoint;
  };
  // The intact checkpoint of the highest step; nullopt where there is none. Each damaged one
  // passed over adds a line to `skipped`.
  Result<std::optional<Found>> Newest(std::vector<std::string>& skipped) const;

 private:
  CheckpointFolder(std::filesystem::path folder, std::uint64_t kept)
      : folder_(std::move(folder)), kept_(kept) {}
  Result<std::vector<std::filesystem::path>> NewestFirst() const;

  std::filesystem::path folder_;
  std::uint64_t kept_;
};

}  // namespace forebay::train
