// FindLaunch: this node's rank, the number of nodes and the job's id, from the environment that a
// launcher has set and from the command line. A pure function of its arguments. One daemon runs on
// each node, so a rank here is that of a node.
//
// A "task" is a process that a launcher starts; it may start several on a node. Sources that count
// nodes:
//   the command line    --node-rank, --node-count
//   srun                SLURM_NODEID, SLURM_STEP_NUM_NODES (srun(1); Slurm's src/common/env.c)
//   PBS, Torque         PBS_NODENUM: the rank alone (OpenPBS's mom sets it for each host)
//   Grid Engine         nothing
// Sources that count tasks, which are used only if there is one task on this node:
//   Open MPI            OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, and
//                       OMPI_COMM_WORLD_LOCAL_SIZE, the tasks on this node (docs.open-mpi.org,
//                       "Environment variables set for MPI applications")
//   PJM (Fujitsu)       PMIX_RANK, the rank alone, and PJM_PROC_BY_NODE, the tasks on each node
//   a PMIx server       PmixTask, if the daemon is connected to one
//
// The innermost launcher counts. Under mpirun the variables of srun and PBS are not read, because
// mpirun starts its helpers through them, on all nodes but its own, and a program inherits the
// helpers' variables (Open MPI's plm_slurm_module.c). Outside a step of srun, SLURM_NODEID
// describes the batch script, and SLURM_NNODES the allocation, so neither is read. SLURM_PROCID,
// SLURM_NTASKS and, under srun, PMIX_RANK count tasks, and are never needed.
//
// The number of nodes of the allocation is the largest that is possible, and is the number of nodes
// if nothing else gives one: the hosts in the file that PBS_NODEFILE or PJM_O_NODEINF names,
// PBS_NUM_NODES (Torque), or PJM_NODE (as in HPX's pjm_environment.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"

namespace forebay::rendezvous {

// A process's environment: name -> value.
using Environment = std::map<std::string, std::string, std::less<>>;

// A number, and where it comes from: "SLURM_NODEID".
struct LaunchFact {
  std::uint32_t value = 0;
  std::string source;
};

// What a PMIx server says about this process.
struct PmixTask {
  std::uint32_t rank = 0;
  std::uint32_t task_count = 0;
  std::uint32_t tasks_on_this_node = 0;
};

struct LaunchSources {
  const Environment& environment;
  std::string node_rank = {};   // --node-rank; empty: not given
  std::string node_count = {};  // --node-count
  std::string job = {};         // --job or daemon.job_id
  // The contents of the file NodeFilePath(environment), if it can be read.
  std::optional<std::string> node_file = std::nullopt;
  std::optional<PmixTask> pmix = std::nullopt;
};

struct JobName {
  std::string name;    // "local" if nothing names a job
  std::string source;  // "SLURM_JOB_ID", "daemon.job_id (--job)", ...
};

struct Launch {
  JobName job;
  std::optional<LaunchFact> rank = std::nullopt;
  std::optional<LaunchFact> node_count = std::nullopt;
  std::string remedy = {};  // why a source was not used and what to do; may be empty
};

struct NodePlace {
  NodeRank rank;
  std::uint32_t node_count = 1;
};

// The job's id, of `environment` and `job` alone. It is a name that a user may choose: --job comes
// before FOREBAY_JOB_ID, and that before the scheduler's id (SchedulerJobs), of which two that
// differ are an error (kFailedPrecondition). kInvalidArgument: errors of CheckJobId.
Result<JobName> FindJob(const LaunchSources& sources);

// Errors: kInvalidArgument: a value is not a number within its bounds (the message names the
// variable); kFailedPrecondition: two sources disagree (the message names both and their values).
Result<Launch> FindLaunch(const LaunchSources& sources);

// Rank and number of nodes. kFailedPrecondition if either is unknown; the message says what to do.
Result<NodePlace> PlaceOf(const Launch& launch);

// The path of the file in which the scheduler lists the hosts of the job; empty: there is none.
std::string NodeFilePath(const Environment& environment);

// A job's id becomes part of paths and messages: 1 to limits::kJobIdBytesMax visible characters,
// no '/', no '.' at the beginning. `source` is named in the error.
Status CheckJobId(std::string_view job, std::string_view source);

}  // namespace forebay::rendezvous
