// CheckpointWriter: writes a checkpoint while training goes on. Every rank writes its own shard on
// a thread. When all have finished, rank 0 publishes the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/checkpoint/checkpoint.h"
#include "trainer/core/checkpoint/checkpoint_folder.h"

namespace forebay::train {

// Where checkpoints go. `folder` is on a file system that all ranks share.
struct CheckpointPlace {
  std::filesystem::path folder;
  CheckpointFolder* publisher = nullptr;  // rank 0's; must outlive the writer
};

// One rank's end. Its threads never call the communicator: ranks agree through votes, which the
// training loop sums up with its other votes. At most one checkpoint is being written. Destruction
// waits for what is being written. Not thread-safe.
class CheckpointWriter {
 public:
  // What a rank says about its part of the checkpoint that is being written.
  struct Vote {
    double unfinished = 0;
    double failed = 0;
  };
  // The result of a checkpoint that is no longer being written.
  struct Outcome {
    std::uint64_t global_step = 0;
    std::filesystem::path path;  // on rank 0, where it was written
    // Null if the checkpoint is written. Otherwise every rank has an error: a rank whose own part
    // succeeded has kAborted.
    std::optional<Error> error;
  };

  explicit CheckpointWriter(Communicator& communicator) : communicator_(communicator) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  bool busy() const { return phase_ != Phase::kIdle; }  // the same on every rank

  // Takes the checkpoint with this rank's tensors (each tensor belongs to one rank) and returns. No
  // other checkpoint may be under way. Collective; errors are the communicator's.
  Status Begin(Checkpoint checkpoint, const CheckpointPlace& place);

  // Returns this rank's vote. Never waits.
  Vote Ask();
  // Continues, given the sum of all ranks' votes. Collective. nullopt if the checkpoint is still
  // being written.
  Result<std::optional<Outcome>> Advance(const Vote& sum);
  // Asks and continues until nothing is being written; nullopt if nothing was. Collective; waits.
  Result<std::optional<Outcome>> Finish();

 private:
  enum class Phase : std::uint8_t { kIdle, kShards, kPublishing };

  void Collect();
  Status ShareFacts();
  Outcome End(std::optional<Error> error);

  Communicator& communicator_;
  Phase phase_ = Phase::kIdle;
  CheckpointPlace place_;
  Manifest manifest_;
  std::size_t shard_ = 0;  // this rank's
  bool has_shard_ = false;
  std::optional<Error> error_;
  std::filesystem::path path_;
  std::future<Result<ShardFacts>> writing_;
  std::future<Result<std::filesystem::path>> publishing_;
};

}  // namespace forebay::train
