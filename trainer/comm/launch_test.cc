// Which environments mean several processes, and when a program refuses to train alone. The
// environment is a map, so no launcher is needed.
#include "trainer/comm/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace forebay::train {
namespace {

Launch LaunchOf(const std::map<std::string, std::string>& environment) {
  return FindLaunch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

void ExpectRefused(const Result<bool>& joins, const std::string& says) {
  ASSERT_FALSE(joins.has_value());
  EXPECT_EQ(joins.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(joins.error().message().find(says), std::string::npos) << joins.error().message();
  EXPECT_NE(joins.error().message().find("run.communicator = \"single\""), std::string::npos);
}

const std::map<std::string, std::string> kOpenMpi = {{"OMPI_COMM_WORLD_SIZE", "4"},
                                                     {"PMIX_RANK", "1"}};
const std::map<std::string, std::string> kMpich = {{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}};
const std::map<std::string, std::string> kSrun = {{"SLURM_PROCID", "1"},
                                                  {"SLURM_NTASKS", "8"},
                                                  {"SLURM_STEP_NUM_TASKS", "8"}};

TEST(LaunchTest, TellsHowManyProcessesThereAre) {
  EXPECT_EQ(LaunchOf({}).processes, 1U);
  EXPECT_EQ(LaunchOf(kOpenMpi).processes, 4U);
  EXPECT_EQ(LaunchOf(kMpich).processes, 3U);
  EXPECT_EQ(LaunchOf(kSrun).processes, 8U);
  auto pmix = kSrun;
  pmix["PMIX_RANK"] = "1";
  EXPECT_EQ(LaunchOf(pmix).processes, 8U);
  EXPECT_TRUE(LaunchOf(pmix).through_mpi);
  EXPECT_EQ(LaunchOf({{"PMIX_RANK", "0"}}).processes, 0U);
}

TEST(LaunchTest, AProgramOfABatchScriptIsAlone) {
  const Launch launch = LaunchOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
  EXPECT_FALSE(launch.of_several());
  EXPECT_EQ(JoinsByMpi("auto", launch, true), false);
  EXPECT_EQ(JoinsByMpi("auto", launch, false), false);
}

TEST(LaunchTest, WithoutMpiSeveralProcessesAreRefused) {
  ExpectRefused(JoinsByMpi("auto", LaunchOf(kOpenMpi), false),
                "a launcher (OMPI_COMM_WORLD_SIZE=4) started 4 processes, and this program was "
                "built without MPI");
  ExpectRefused(JoinsByMpi("auto", LaunchOf(kMpich), false), "PMI_SIZE=3");
  ExpectRefused(JoinsByMpi("auto", LaunchOf(kSrun), false), "SLURM_STEP_NUM_TASKS=8");
  ExpectRefused(JoinsByMpi("auto", LaunchOf({{"PMIX_RANK", "0"}}), false), "PMIX_RANK=0");
  EXPECT_EQ(JoinsByMpi("auto", LaunchOf({{"OMPI_COMM_WORLD_SIZE", "1"}}), false), false);
  EXPECT_EQ(JoinsByMpi("auto", LaunchOf({}), false), false);
}

TEST(LaunchTest, WithMpiALauncherThatSpeaksItIsJoined) {
  for (const auto& environment : {kOpenMpi, kMpich, {{"PMIX_RANK", "0"}}}) {
    EXPECT_EQ(JoinsByMpi("auto", LaunchOf(environment), true), true);
  }
  EXPECT_EQ(JoinsByMpi("auto", LaunchOf({}), true), false);
  ExpectRefused(JoinsByMpi("auto", LaunchOf(kSrun), true), "has not told MPI");
}

TEST(LaunchTest, TheKeyHasTheLastWord) {
  EXPECT_EQ(JoinsByMpi("single", LaunchOf(kOpenMpi), true), false);
  EXPECT_EQ(JoinsByMpi("single", LaunchOf(kOpenMpi), false), false);
  EXPECT_EQ(JoinsByMpi("mpi", LaunchOf({}), true), true);
  const auto without = JoinsByMpi("mpi", LaunchOf(kOpenMpi), false);
  ASSERT_FALSE(without.has_value());
  EXPECT_EQ(without.error().code(), ErrorCode::kInvalidArgument);
}

TEST(LaunchTest, AnMpirunOfAnotherMpiIsFoundOut) {
  EXPECT_TRUE(CheckRanksOfLaunch(LaunchOf(kMpich), 3).has_value());
  EXPECT_TRUE(CheckRanksOfLaunch(LaunchOf({{"PMIX_RANK", "0"}}), 5).has_value());
  EXPECT_TRUE(CheckRanksOfLaunch(LaunchOf({}), 1).has_value());
  const Status refused = CheckRanksOfLaunch(LaunchOf(kMpich), 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message().find("MPI knows of 1"), std::string::npos)
      << refused.error().message();
}

}  // namespace
}  // namespace forebay::train
