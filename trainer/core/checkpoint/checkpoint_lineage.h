// Whose the checkpoints in a folder are. A folder holds one line of history: the checkpoints
// directly in it, and in its folder `best`, are of one run, each made by going on from the one
// before. Whatever is of another run, or of a branch that was left, lies in
// `aside-<run>-<number>`, moved there by rename and never deleted.
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

// What a folder has of one checkpoint, by its manifest; shards are not looked at.
struct StoredCheckpoint {
  std::filesystem::path path;
  std::uint64_t step = 0;
  bool is_best = false;            // lies in kBestFolder
  std::optional<std::string> run;  // nullopt: its manifest cannot be read
};

// Those of `folder` by ascending step, behind them those of its `best` likewise. None where the
// folder is not there.
Result<std::vector<StoredCheckpoint>> ListCheckpoints(const std::filesystem::path& folder);

// Whether `checkpoint` lies directly in `folder` or in its `best`, links resolved.
bool LiesIn(const std::filesystem::path& checkpoint, const std::filesystem::path& folder);

// For a run that has no part in the folder's history. kAlreadyExists where the folder holds
// checkpoints, best ones included; it names the folder, the newest and what can be done.
Status CheckUnused(const std::filesystem::path& folder);

// kFailedPrecondition where the folder also holds checkpoints of another run than `run`: which one
// is the newest is then not for a program to say.
Status CheckOneRun(const std::filesystem::path& folder, const std::string& run);

// Moves aside what is not in the history of `kept`: other runs, and later steps than its own.
// Without `kept`: all. The highest step is moved last, so that a crash on the way leaves the folder
// with the newest checkpoint of before; another call then finishes. Returns a line for people for
// each folder that was made.
Result<std::vector<std::string>> MoveAside(const std::filesystem::path& folder,
                                           const std::optional<CheckpointOrigin>& kept);

}  // namespace forebay::train
