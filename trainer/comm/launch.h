// FindLaunch: whether a launcher (mpirun, srun) started this process as one of several. It reads
// only the environment, so that a program that was built without MPI can tell, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::train {

struct Launch {
  std::string sign;  // "OMPI_COMM_WORLD_SIZE=4"; empty: nothing in the environment tells of others
  std::uint32_t processes = 1;  // 0: of one or several, which the launcher does not tell
  bool through_mpi = false;     // MPI finds the others

  bool of_several() const { return processes != 1; }
};

// `variable` returns the value of an environment variable, or null.
Launch FindLaunch(const std::function<const char*(const char* name)>& variable);

// Returns true if the trainer joins the other processes by MPI, and false if it trains alone.
// `communicator` is the configuration key of that name: "auto", "mpi" or "single".
// kFailedPrecondition, with the remedy, if several processes would each train alone on one
// checkpoint folder. kInvalidArgument for "mpi" if the program was built without it.
Result<bool> JoinsByMpi(std::string_view communicator, const Launch& launch, bool built_with_mpi);

// kFailedPrecondition if the number of ranks that MPI knows differs from the number that was
// launched: then mpirun and the library that the program is linked with belong to different MPIs.
Status CheckRanksOfLaunch(const Launch& launch, std::uint32_t ranks);

}  // namespace forebay::train
