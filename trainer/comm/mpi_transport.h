// Ranks as processes of an MPI job.
#pragma once

#include <memory>

#include "proto/contract/result.h"
#include "trainer/comm/transport.h"

namespace forebay::train {

// True where a launcher (Open MPI, MPICH, Slurm's PMI) started this process as one of a job.
bool LaunchedByMpi();

// Initialises MPI, and finalises it when destroyed; once in a process, from the thread that will
// make all calls. Each lane has a communicator of its own.
Result<std::unique_ptr<Transport>> MakeMpiTransport();

}  // namespace forebay::train
