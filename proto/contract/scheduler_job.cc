// Looks for the variables of each scheduler in turn.
#include "proto/contract/scheduler_job.h"

#include <algorithm>
#include <utility>

namespace forebay {
namespace {

// An array job has a number for each of its tasks. In other jobs, Grid Engine sets "undefined".
bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<SchedulerJob> SchedulerJobs(const std::function<const char*(const char*)>& variable) {
  const auto value = [&variable](const char* name) {
    const char* text = variable(name);
    return text == nullptr ? std::string() : std::string(text);
  };
  std::vector<SchedulerJob> jobs;
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID"}) {
    if (std::string id = value(name); !id.empty()) jobs.push_back({std::move(id), name});
  }
  const std::string task = value("SGE_TASK_ID");
  if (std::string id = value("JOB_ID"); !id.empty() && !task.empty()) {
    // The tasks of an array job are jobs of their own, which may run on the same node.
    if (IsNumber(task)) id += "." + task;
    jobs.push_back({std::move(id), "JOB_ID"});
  }
  return jobs;
}

}  // namespace forebay
