// Decides from environment variables alone whether several processes were started, so that a
// program without MPI can refuse, too. The danger is that each process of a job trains alone and
// all write to one checkpoint folder; every doubtful case is therefore an error with its remedy.
#include "trainer/comm/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace forebay::train {
namespace {

constexpr std::string_view kAloneRemedy =
    "run.communicator = \"single\" is for processes that have nothing to do with each other";

// A variable that a launcher has set, with its value, which error messages show.
struct Sign {
  std::string text;
  std::uint32_t processes = 0;
};

std::optional<Sign> ReadSign(const std::function<const char*(const char*)>& variable,
                             const char* name) {
  const char* const value = variable(name);
  if (value == nullptr) return {};
  const std::string_view text = value;
  Sign sign{.text = fmt::format("{}={}", name, text)};
  // A value that is no number leaves 0, which means: an unknown number of processes.
  std::from_chars(text.data(), text.data() + text.size(), sign.processes);
  return sign;
}

std::string Describe(const Launch& launch) {
  if (launch.processes == 0) return fmt::format("a launcher ({}) started processes", launch.sign);
  return fmt::format("a launcher ({}) started {} processes", launch.sign, launch.processes);
}

Error NobodyJoins(const Launch& launch, std::string_view why, std::string_view remedy) {
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("{}, and {}: each would train alone, on the same checkpoints. {}; {}",
                           Describe(launch), why, remedy, kAloneRemedy));
}

}  // namespace

// Open MPI and MPICH tell how many there are. PMIx, by which Slurm starts Open MPI, tells the rank
// alone. Slurm's own SLURM_NTASKS is set in batch scripts, too, whose programs are alone: only srun
// sets the number of its step.
Launch FindLaunch(const std::function<const char*(const char*)>& variable) {
  const std::optional<Sign> step = ReadSign(variable, "SLURM_STEP_NUM_TASKS");
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const auto sign = ReadSign(variable, name)) {
      return {.sign = sign->text, .processes = sign->processes, .through_mpi = true};
    }
  }
  for (const char* const name : {"PMIX_RANK", "PMI_RANK"}) {
    if (const auto sign = ReadSign(variable, name)) {
      return {.sign = sign->text, .processes = step ? step->processes : 0, .through_mpi = true};
    }
  }
  if (step && variable("SLURM_PROCID") != nullptr) {
    return {.sign = step->text, .processes = step->processes, .through_mpi = false};
  }
  return {};
}

Result<bool> JoinsByMpi(std::string_view communicator, const Launch& launch,
                        bool built_with_mpi) {
  // "single" is the user's word that the processes are independent.
  if (communicator == "single") return false;
  if (communicator == "mpi" && !built_with_mpi) {
    return Error(ErrorCode::kInvalidArgument,
                 "run.communicator = \"mpi\": this program was built without MPI");
  }
  if (communicator == "mpi") return true;
  if (built_with_mpi && launch.through_mpi) return true;
  if (!launch.of_several()) return false;
  if (!built_with_mpi) {
    return NobodyJoins(launch, "this program was built without MPI",
                       "Build it with MPI (apt-get install libopenmpi-dev, and configure again), "
                       "or start one process");
  }
  return NobodyJoins(launch, "has not told MPI of the others",
                     "Start it with mpirun, or with srun --mpi=pmix (srun --mpi=list tells what "
                     "there is)");
}

Status CheckRanksOfLaunch(const Launch& launch, std::uint32_t ranks) {
  // Only a launcher that states a number of processes can contradict MPI.
  if (launch.processes == 0 || launch.processes == ranks) return {};
  if (launch.sign.empty()) return {};
  return NobodyJoins(launch,
                     fmt::format("MPI knows of {}, as where mpirun is of another MPI than the "
                                 "library that this program is linked with",
                                 ranks),
                     "Start it with the mpirun of that library (ldd forebay-train names it)");
}

}  // namespace forebay::train
