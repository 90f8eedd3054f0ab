// The communicator over MPI. Without MPI the target forebay::trainer_mpi does not exist.
#pragma once

#include <memory>

#include "proto/contract/result.h"
#include "trainer/core/communicator.h"

namespace forebay::train {

// True where a launcher (mpirun, srun) started this process as one of several; reads only the
// environment, so that a run without a launcher pays nothing for MPI.
bool LaunchedByMpi();

// Initialises MPI; its destruction finalises it. At most one per process, before any thread.
// kFailedPrecondition where MPI was initialised before.
Result<std::unique_ptr<Communicator>> MakeMpiCommunicator();

}  // namespace forebay::train
