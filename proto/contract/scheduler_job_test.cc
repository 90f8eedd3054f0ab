// SchedulerJobs: what each scheduler sets, several at once, and variables that say nothing.
#include "proto/contract/scheduler_job.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace forebay {
namespace {

using Variables = std::map<std::string, std::string>;

// "NAME=ID" of each job that is found.
std::vector<std::string> Found(const Variables& variables) {
  std::vector<std::string> found;
  for (const SchedulerJob& job : SchedulerJobs([&variables](const char* name) {
         const auto at = variables.find(name);
         return at == variables.end() ? nullptr : at->second.c_str();
       })) {
    found.push_back(std::string(job.variable) + "=" + job.id);
  }
  return found;
}

using Jobs = std::vector<std::string>;

TEST(SchedulerJobTest, EachSchedulerNamesItsJob) {
  EXPECT_EQ(Found({{"SLURM_JOB_ID", "1"}}), Jobs{"SLURM_JOB_ID=1"});
  EXPECT_EQ(Found({{"PBS_JOBID", "2[5].pbs"}}), Jobs{"PBS_JOBID=2[5].pbs"});
  EXPECT_EQ(Found({{"PJM_JOBID", "3"}}), Jobs{"PJM_JOBID=3"});
  EXPECT_EQ(Found({{"JOB_ID", "4"}, {"SGE_TASK_ID", "undefined"}}), Jobs{"JOB_ID=4"});
}

TEST(SchedulerJobTest, TasksOfAnArrayJobOfGridEngineAreJobsOfTheirOwn) {
  EXPECT_EQ(Found({{"JOB_ID", "4"}, {"SGE_TASK_ID", "17"}}), Jobs{"JOB_ID=4.17"});
}

TEST(SchedulerJobTest, AnotherProgramsJobIdIsNotTaken) {
  EXPECT_EQ(Found({{"JOB_ID", "4"}}), Jobs{});
  EXPECT_EQ(Found({{"JOB_ID", "4"}, {"SGE_TASK_ID", ""}}), Jobs{});
  EXPECT_EQ(Found({{"SGE_TASK_ID", "undefined"}}), Jobs{});
}

TEST(SchedulerJobTest, SetToNothingIsNotSet) {
  EXPECT_EQ(Found({}), Jobs{});
  EXPECT_EQ(Found({{"SLURM_JOB_ID", ""}, {"PBS_JOBID", "2"}}), Jobs{"PBS_JOBID=2"});
}

TEST(SchedulerJobTest, SeveralComeInTheOrderOfTheTable) {
  EXPECT_EQ(Found({{"PJM_JOBID", "3"},
                   {"JOB_ID", "4"},
                   {"SGE_TASK_ID", "undefined"},
                   {"PBS_JOBID", "2"},
                   {"SLURM_JOB_ID", "1"}}),
            (Jobs{"SLURM_JOB_ID=1", "PBS_JOBID=2", "PJM_JOBID=3", "JOB_ID=4"}));
}

}  // namespace
}  // namespace forebay
