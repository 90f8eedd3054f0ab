// CheckpointFolder: the checkpoints of one run, each a folder named by its global step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint/checkpoint.h"

namespace forebay::train {

// Where the shards of step `step` are written until they are published: no reader looks there.
std::filesystem::path UnpublishedFolder(const std::filesystem::path& folder, std::uint64_t step);

// Where it lies once it is published.
std::filesystem::path PublishedFolder(const std::filesystem::path& folder, std::uint64_t step);

// The steps that checkpoints in `folder` have by their names, ascending; nothing is read of them.
Result<std::vector<std::uint64_t>> PublishedSteps(const std::filesystem::path& folder);

// Gives a checkpoint its name back that a crash took while another of the same step was put in its
// place. Before anything is looked for in `folder`; one that is not there is fine.
Status RestoreReplaced(const std::filesystem::path& folder);

// Used by one process of the run at a time (rank 0). Not thread-safe.
class CheckpointFolder {
 public:
  // Creates the folder and removes what a crash left unpublished in it. `kept`, at least 1, is
  // how many checkpoints of the run stay: those that are published here, and adopted ones.
  static Result<CheckpointFolder> Open(std::filesystem::path folder, std::uint64_t kept);

  const std::filesystem::path& path() const { return folder_; }

  // All that the folder holds is of the run that is going to publish, and no later than where it
  // stands (checkpoint_lineage.h): older ones go as newer ones come. Others are never removed.
  Status Adopt();

  // Writes the manifest beside the shards in UnpublishedFolder of its step, which must be there
  // and as long as it says, gives the whole its name, which is when it begins to exist, and
  // removes the run's older ones, but never this one. One of the same step is replaced, and is
  // there until then. Survives a crash once it has returned. Returns its path.
  Result<std::filesystem::path> Publish(const Manifest& manifest);
  // Removes what Publish would have published.
  void Abandon(std::uint64_t step);

 private:
  CheckpointFolder(std::filesystem::path folder, std::uint64_t kept)
      : folder_(std::move(folder)), kept_(kept) {}
  Status Replace(const std::filesystem::path& unpublished, const std::filesystem::path& path);
  void RemoveOlderThan(std::uint64_t published);

  std::filesystem::path folder_;
  std::uint64_t kept_;
  std::set<std::uint64_t> own_;  // steps of the run's that are there
};

// The intact checkpoint of the highest step in `folder`, every byte of it checked; nullopt where
// there is none. Each damaged one passed over adds a line to `skipped`; one that cannot be read
// (permission, a device's error, another format) is an error instead.
Result<std::optional<std::filesystem::path>> NewestCheckpoint(
    const std::filesystem::path& folder, std::vector<std::string>& skipped);

// The checkpoint that `path` means: itself, the one whose manifest it is, or the newest intact
// one in it. kNotFound, or VerifyCheckpoint's errors.
Result<std::filesystem::path> FindCheckpoint(const std::filesystem::path& path,
                                             std::vector<std::string>& skipped);

}  // namespace forebay::train
