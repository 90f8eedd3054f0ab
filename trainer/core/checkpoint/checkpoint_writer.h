// CheckpointWriter: writes a checkpoint while training goes on. Every rank writes its own shard on
// a thread of its own; once all have, rank 0 publishes the whole.
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

// Where checkpoints go. All ranks share the file system that `folder` is on.
struct CheckpointPlace {
  std::filesystem::path folder;
  CheckpointFolder* publisher = nullptr;  // rank 0's; must outlive the writer
};

// One rank's end. Threads never call the communicator: ranks agree through votes that the training
// loop adds up anyway. At most one checkpoint is under way. Destruction waits for what is being
// written. Not thread-safe.
class CheckpointWriter {
 public:
  // What a rank says about its part of the one under way.
  struct Vote {
    double unfinished = 0;
    double failed = 0;
  };
  // One that is no longer under way.
  struct Outcome {
    std::uint64_t global_step = 0;
    std::filesystem::path path;  // on rank 0, where it was written
    // Not there: it is written. Every rank has one or none has: a rank whose own part went well
    // has kAborted.
    std::optional<Error> error;
  };

  explicit CheckpointWriter(Communicator& communicator) : communicator_(communicator) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  bool busy() const { return phase_ != Phase::kIdle; }  // the same on every rank

  // Takes the checkpoint with this rank's tensors (each tensor is one rank's) and returns; the
  // checkpoint before must no longer be under way. Collective; errors are the communicator's.
  Status Begin(Checkpoint checkpoint, const CheckpointPlace& place);

  // Never waits.
  Vote Ask();
  // Goes on, given the sum of all ranks' votes. Collective. nullopt where there is more to come.
  Result<std::optional<Outcome>> Advance(const Vote& sum);
  // Asks and goes on until nothing is under way; nullopt where nothing was. Collective, waits.
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
