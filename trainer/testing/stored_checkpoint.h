// Checkpoints on disk, written and read whole.
#pragma once

#include <filesystem>
#include <functional>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint/checkpoint.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"

namespace forebay::train::testing {

// Writes `checkpoint` into `folder` as a run of one rank does, and opens it.
Result<CheckpointReader> Store(const Checkpoint& checkpoint, const std::filesystem::path& folder);

// With all tensors of all shards, by name.
Result<Checkpoint> ReadWhole(const std::filesystem::path& checkpoint);

// Changes what its manifest says.
void Rewrite(const std::filesystem::path& checkpoint,
             const std::function<void(Checkpoint&)>& change);

}  // namespace forebay::train::testing
