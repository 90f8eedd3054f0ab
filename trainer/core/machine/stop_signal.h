// StopSignal: SIGTERM (a batch system ends the job), SIGUSR1 (it warns ahead) and SIGINT become
// a flag that the training loop asks between steps.
#pragma once

namespace forebay::train {

// Exit code of a run that was stopped, checkpointed, and wants to be started again: outside
// the shell's and the signals' numbers, and what Slurm's requeue hooks test for.
inline constexpr int kExitRequeue = 85;

// Handlers are in place while it lives; the second SIGINT or SIGTERM ends the process as if
// there were none. At most one per process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace forebay::train
