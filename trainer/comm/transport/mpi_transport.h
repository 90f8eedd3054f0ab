// Ranks as processes of an MPI job.
#pragma once

#include <memory>

#include "proto/contract/result.h"
#include "trainer/comm/transport/transport.h"

namespace forebay::train {

// Initialises MPI, and finalises it when destroyed; once in a process, from the thread that will
// make all calls. Each lane has a communicator of its own. kFailedPrecondition where MPI was
// initialised before, or allows no threads beside the one that calls it.
Result<std::unique_ptr<Transport>> MakeMpiTransport();

}  // namespace forebay::train
