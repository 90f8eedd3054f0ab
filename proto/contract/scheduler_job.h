// SchedulerJobs: the job's id, as schedulers give it to each process of a job in the environment.
// The daemon and the client library both look here, so that they name a job alike.
//
//   Slurm        SLURM_JOB_ID
//   PBS, Torque  PBS_JOBID
//   PJM          PJM_JOBID
//   Grid Engine  JOB_ID, in an array job with SGE_TASK_ID behind it: "4711.3". Other programs use
//                the name JOB_ID, too, so it counts only beside SGE_TASK_ID, which Grid Engine sets
//                in every job.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace forebay {

struct SchedulerJob {
  std::string id;             // not checked: a user may set such a variable to anything
  std::string_view variable;  // that says it, for messages
};

// Returns the ids that are set, in the order above: several, if one scheduler runs in a job of
// another one. `variable` finds the value of a variable, as std::getenv does. A variable that is
// set to nothing counts as not set.
std::vector<SchedulerJob> SchedulerJobs(const std::function<const char*(const char*)>& variable);

}  // namespace forebay
