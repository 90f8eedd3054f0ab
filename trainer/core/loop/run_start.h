// Where a run begins, and how it makes sure that its folder of checkpoints is its own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/checkpoint/checkpoint_writer.h"
#include "trainer/core/checkpoint/folder_lock.h"
#include "trainer/core/config/train_config.h"

namespace forebay::train {

struct StartParts {
  Communicator& communicator;
  const std::function<void(const std::string&)>& print;
  const std::function<std::uint64_t()>& draw_run;  // a number that no other run has
};

struct RunStart {
  std::optional<CheckpointReader> checkpoint;  // nullopt: the run starts afresh
  // Whose checkpoints this run writes: those of the run that goes on, or a new one's. Rank 0's.
  std::string run;
  std::optional<CheckpointOrigin> resumed_from;
  bool goes_on = false;  // in the history that checkpoint_dir holds
};

// The checkpoint that checkpoint.resume names, every byte of it checked by rank 0, and none where
// the run starts afresh (no resume, or `auto` and no checkpoint yet). A checkpoint of
// checkpoint_dir goes on with its run; any other begins a run of its own. kAlreadyExists where
// checkpoint_dir holds checkpoints of another run and checkpoint.new_run does not say that they may
// be moved aside. Changes nothing. Collective: errors are the same on every rank.
Result<RunStart> FindRunStart(const CheckpointConfig& config, const StartParts& parts);

// The run's folders of checkpoints; rank 0 writes to them.
class RunFolders {
 public:
  // Before anything in checkpoint_dir is looked at: no other run may write there from now on
  // (FolderLock). Does not make it. Collective.
  Status Lock(const CheckpointConfig& config, Communicator& communicator);
  // Makes and locks them, sees that they can be written to, and removes what a crash left
  // unpublished. Collective.
  Status Open(const CheckpointConfig& config, Communicator& communicator);
  // When nothing stands against the run any more, before its first step: moves aside what does not
  // belong to its history and says so. Collective.
  Status Claim(const CheckpointConfig& config, const RunStart& start, const StartParts& parts);

  const CheckpointPlace& regular() const { return regular_; }
  const CheckpointPlace& best() const { return best_; }

 private:
  Status LockHere(const CheckpointConfig& config);
  Status OpenHere(const CheckpointConfig& config);
  Status ClaimHere(const CheckpointConfig& config, const RunStart& start,
                   const StartParts& parts);

  Status NoteBest(const CheckpointReader& checkpoint, const StartParts& parts) const;

  std::optional<FolderLock> lock_;  // before what is in the folder, so that it goes last
  std::array<std::optional<CheckpointFolder>, 2> folders_;
  CheckpointPlace regular_;
  CheckpointPlace best_;
};

}  // namespace forebay::train
