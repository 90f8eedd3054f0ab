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

// The folder that the shards of step `step` are written to until they are published. Readers never
// look there.
std::filesystem::path UnpublishedFolder(const std::filesystem::path& folder, std::uint64_t step);

// The folder of a published checkpoint.
std::filesystem::path PublishedFolder(const std::filesystem::path& folder, std::uint64_t step);

// The steps of the checkpoints in `folder`, ascending, by their names. Nothing is read.
Result<std::vector<std::uint64_t>> PublishedSteps(const std::filesystem::path& folder);

// Gives a checkpoint its name back that it lost when a crash came while another checkpoint of the
// same step took its place. Call it before looking for checkpoints in `folder`, which need not
// exist.
Status RestoreReplaced(const std::filesystem::path& folder);

// Used by one process of the run at a time (rank 0). Not thread-safe.
class CheckpointFolder {
 public:
  // Creates the folder and removes what a crash left unpublished in it. `kept`, at least 1, is the
  // number of the run's checkpoints that are kept: those published here and adopted ones.
  static Result<CheckpointFolder> Open(std::filesystem::path folder, std::uint64_t kept);

  const std::filesystem::path& path() const { return folder_; }

  // Counts all checkpoints in the folder as the run's: older ones are removed as newer ones are
  // published. Call it when they all belong to the run and are no later than its position
  // (checkpoint_lineage.h). Checkpoints that are not the run's are never removed.
  Status Adopt();

  // Publishes a checkpoint: checks that the shards are in UnpublishedFolder of its step with the
  // sizes that the manifest states, writes the manifest beside them, and gives the folder its name.
  // From then on the checkpoint exists, and it survives a crash once the call has returned. Then
  // removes the run's older ones. A checkpoint of the same step is replaced, and exists until then.
  // Returns the path.
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

// Returns the intact checkpoint of the highest step in `folder`, after checking every byte of it;
// nullopt if there is none. For each damaged one that is passed over a line is added to `skipped`.
// A checkpoint that cannot be read (permission, device error, another format) is an error instead.
Result<std::optional<std::filesystem::path>> NewestCheckpoint(
    const std::filesystem::path& folder, std::vector<std::string>& skipped);

// Returns the checkpoint that `path` names: the folder itself, the folder of that manifest, or the
// newest intact one in the folder. kNotFound, or the errors of VerifyCheckpoint.
Result<std::filesystem::path> FindCheckpoint(const std::filesystem::path& path,
                                             std::vector<std::string>& skipped);

}  // namespace forebay::train
