// StopSignal: turns SIGTERM (a batch system ends the job), SIGUSR1 (it warns before that) and
// SIGINT into a flag that the training loop reads between steps.
#pragma once

namespace forebay::train {

// The exit code of a run that was stopped, wrote a checkpoint, and wants to be started again. It is
// not used by shells or signals, and Slurm's requeue hooks test for it.
inline constexpr int kExitRequeue = 85;

// Handlers are installed while the object exists. A second SIGINT or SIGTERM ends the process as if
// there were no handler. At most one object per process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace forebay::train
