// Which run the checkpoints in a folder belong to. A folder holds one line of history: the
// checkpoints directly in it and in its folder `best` belong to one run, and each was made by
// continuing from the one before. Checkpoints of other runs, and of branches that were abandoned,
// lie in `aside-<run>-<number>`. They are moved there by renaming, and never deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint/checkpoint.h"

namespace forebay::train {

inline constexpr const char* kBestFolder = "best";

// A checkpoint of a folder, as its manifest describes it. Shards are not read.
struct StoredCheckpoint {
  std::filesystem::path path;
  std::uint64_t step = 0;
  bool is_best = false;            // lies in kBestFolder
  std::optional<std::string> run;  // nullopt: its manifest cannot be read
};

// Lists the checkpoints of `folder` by ascending step, then those of its `best`. Empty if the
// folder does not exist.
Result<std::vector<StoredCheckpoint>> ListCheckpoints(const std::filesystem::path& folder);

// Whether `checkpoint` lies directly in `folder` or in its `best`, links resolved.
bool LiesIn(const std::filesystem::path& checkpoint, const std::filesystem::path& folder);

// For a run that does not continue the folder's history. kAlreadyExists if the folder holds
// checkpoints, best ones included. The message names the folder, the newest checkpoint and what can
// be done.
Status CheckUnused(const std::filesystem::path& folder);

// kFailedPrecondition if the folder also holds checkpoints of another run than `run`: then a
// program cannot decide which one is the newest.
Status CheckOneRun(const std::filesystem::path& folder, const std::string& run);

// Moves all checkpoints aside that are not in the history of `kept`: those of other runs, and later
// steps of the same run; without `kept`, all. The highest step is moved last: after a crash on the
// way the folder still has its newest checkpoint, and another call finishes. Returns one line for
// people for each folder that was made.
Result<std::vector<std::string>> MoveAside(const std::filesystem::path& folder,
                                           const std::optional<CheckpointOrigin>& kept);

}  // namespace forebay::train
