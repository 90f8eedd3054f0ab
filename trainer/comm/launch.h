// Launch: whether a launcher started this process as one of several, by what it left in the
// environment. Known without MPI, so that a program that was built without it can tell.
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

// Whether the trainer joins the others by MPI (true), or trains alone. `communicator` is the key
// of that name: "auto", "mpi" or "single". kFailedPrecondition, with the remedy, where several
// processes would each train alone on one checkpoint folder. kInvalidArgument for "mpi" where the
// program was built without it.
Result<bool> JoinsByMpi(std::string_view communicator, const Launch& launch, bool built_with_mpi);

// kFailedPrecondition where the job that MPI knows (`ranks`) is not the one that was launched:
// mpirun and the library that the program was linked with are of different MPIs.
Status CheckRanksOfLaunch(const Launch& launch, std::uint32_t ranks);

}  // namespace forebay::train
