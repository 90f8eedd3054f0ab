// FindLaunch: what each launcher sets, sources that disagree, and values that are not numbers. The
// environments are those that the launchers really set, shortened to what matters.
#include "server/rendezvous/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::rendezvous::launch_environment_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// srun -N 4 --ntasks-per-node=2, second node.
const Environment kSrun = {{"SLURM_JOB_ID", "4711"},       {"SLURM_STEP_ID", "0"},
                           {"SLURM_NODEID", "1"},          {"SLURM_STEP_NUM_NODES", "4"},
                           {"SLURM_PROCID", "3"},          {"SLURM_STEP_NUM_TASKS", "8"},
                           {"SLURM_NNODES", "4"},          {"SLURM_NTASKS", "8"}};
// mpirun --map-by ppr:1:node -n 3, second node.
const Environment kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "3"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                             {"PMIX_NAMESPACE", "287178753"},
                             {"PMIX_RANK", "1"}};
const Environment kPbs = {{"PBS_JOBID", "1234[5].pbs"}, {"PBS_NODENUM", "2"}};
// mpiexec on Fugaku, one process per node.
const Environment kPjm = {{"PJM_JOBID", "99"}, {"PJM_NODE", "12"},  {"PJM_MPI_PROC", "12"},
                          {"PJM_PROC_BY_NODE", "1"}, {"PMIX_RANK", "7"}};

// qrsh -inherit HOST, on another host than that of the job script.
const Environment kGridEngine = {{"JOB_ID", "77"},
                                 {"SGE_TASK_ID", "undefined"},
                                 {"PE", "nodes"},
                                 {"NHOSTS", "1"},
                                 {"NSLOTS", "1"},
                                 {"JOB_NAME", "petask"}};

Environment With(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

void ExpectPlace(const LaunchSources& sources, std::uint32_t rank, std::uint32_t count) {
  const auto launch = FindLaunch(sources);
  ASSERT_TRUE(launch.has_value()) << launch.error().ToString();
  const auto place = PlaceOf(*launch);
  ASSERT_TRUE(place.has_value()) << place.error().ToString();
  EXPECT_EQ(place->rank, NodeRank(rank));
  EXPECT_EQ(place->node_count, count);
}

template <typename Matcher>
void ExpectRefused(const LaunchSources& sources, ErrorCode code, const Matcher& message) {
  const auto launch = FindLaunch(sources);
  ASSERT_FALSE(launch.has_value());
  EXPECT_EQ(launch.error().code(), code);
  EXPECT_THAT(launch.error().message(), message);
}

template <typename Matcher>
void ExpectNoPlace(const LaunchSources& sources, const Matcher& message) {
  const auto launch = FindLaunch(sources);
  ASSERT_TRUE(launch.has_value()) << launch.error().ToString();
  const auto place = PlaceOf(*launch);
  ASSERT_FALSE(place.has_value());
  EXPECT_EQ(place.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(place.error().message(), message);
}

TEST(LaunchEnvironmentTest, SrunTellsTheNode) {
  ExpectPlace({.environment = kSrun}, 1, 4);
  EXPECT_EQ(FindLaunch({.environment = kSrun})->job.name, "4711");
  EXPECT_EQ(FindLaunch({.environment = kSrun})->job.source, "SLURM_JOB_ID");
  // srun --mpi=pmix: the rank of the task is not that of the node.
  ExpectPlace({.environment = With(kSrun, {{"PMIX_RANK", "3"}})}, 1, 4);
}

TEST(LaunchEnvironmentTest, MpirunTellsTheTaskWhichIsTheNodeIfThereIsOnePerNode) {
  ExpectPlace({.environment = kMpirun}, 1, 3);
  ExpectNoPlace({.environment = With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})},
                AllOf(HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE=2"), HasSubstr("ppr:1:node")));
  ExpectPlace({.environment = With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
               .node_rank = "0",
               .node_count = "2"},
              0, 2);
}

TEST(LaunchEnvironmentTest, UnderMpirunTheStepOfItsHelpersIsNotRead) {
  // mpirun on the first of three nodes of a Slurm job starts its helpers on the two others.
  const Environment helpers = {{"SLURM_JOB_ID", "4711"},
                               {"SLURM_NODEID", "0"},
                               {"SLURM_STEP_NUM_NODES", "2"},
                               {"PBS_NODENUM", "0"}};
  ExpectPlace({.environment = With(kMpirun, helpers)}, 1, 3);
}

TEST(LaunchEnvironmentTest, PbsTellsTheNodeAndItsFileTheNumber) {
  ExpectNoPlace({.environment = kPbs}, HasSubstr("sort -u $PBS_NODEFILE"));
  ExpectPlace({.environment = kPbs, .node_count = "3"}, 2, 3);
  const Environment with_file = With(kPbs, {{"PBS_NODEFILE", "/var/spool/pbs/aux/1234"}});
  EXPECT_EQ(NodeFilePath(with_file), "/var/spool/pbs/aux/1234");
  ExpectPlace({.environment = with_file, .node_file = "a\na\nb\nb\nc\r\nc\n\n"}, 2, 3);
  ExpectPlace({.environment = With(kPbs, {{"PBS_NUM_NODES", "5"}})}, 2, 5);
  EXPECT_EQ(FindLaunch({.environment = kPbs})->job.name, "1234[5].pbs");
}

TEST(LaunchEnvironmentTest, PjmTellsTheTaskAndTheNumberOfNodes) {
  ExpectPlace({.environment = kPjm}, 7, 12);
  EXPECT_EQ(FindLaunch({.environment = kPjm})->job.name, "99");
  ExpectNoPlace({.environment = With(kPjm, {{"PJM_PROC_BY_NODE", "4"}})},
                HasSubstr("PJM_PROC_BY_NODE=4"));
  EXPECT_EQ(NodeFilePath(With(kPjm, {{"PJM_O_NODEINF", "/tmp/nodes"}})), "/tmp/nodes");
}

TEST(LaunchEnvironmentTest, PmixAloneNeedsItsServer) {
  const Environment prterun = {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prterun-a-1@1"}};
  ExpectNoPlace({.environment = prterun}, HasSubstr("nodes.rendezvous"));
  ExpectPlace({.environment = prterun,
               .pmix = PmixTask{.rank = 2, .task_count = 6, .tasks_on_this_node = 1}},
              2, 6);
  ExpectNoPlace({.environment = prterun,
                 .pmix = PmixTask{.rank = 2, .task_count = 6, .tasks_on_this_node = 3}},
                HasSubstr("local size=3"));
}

TEST(LaunchEnvironmentTest, TheCommandLineIsEnough) {
  const Environment empty;
  ExpectPlace({.environment = empty, .node_rank = "5", .node_count = "6", .job = "mine"}, 5, 6);
  EXPECT_EQ(FindLaunch({.environment = empty, .job = "mine"})->job.name, "mine");
  EXPECT_EQ(FindLaunch({.environment = empty})->job.name, "local");
  ExpectNoPlace({.environment = empty}, HasSubstr("--node-rank"));
  ExpectNoPlace({.environment = empty, .node_rank = "0"}, HasSubstr("--node-count"));
}

TEST(LaunchEnvironmentTest, ABatchScriptOfSlurmKnowsNoStep) {
  const Environment script = {{"SLURM_JOB_ID", "4711"}, {"SLURM_NODEID", "0"},
                              {"SLURM_PROCID", "0"},    {"SLURM_NNODES", "4"},
                              {"SLURM_NTASKS", "4"}};
  ExpectNoPlace({.environment = script}, HasSubstr("srun --ntasks-per-node=1"));
}

TEST(LaunchEnvironmentTest, SourcesThatDisagreeAreNamedWithTheirValues) {
  ExpectRefused({.environment = kSrun, .node_rank = "2"}, ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("--node-rank=2"), HasSubstr("SLURM_NODEID=1")));
  ExpectRefused({.environment = kSrun, .node_count = "5"}, ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("--node-count=5"), HasSubstr("SLURM_STEP_NUM_NODES=4")));
  ExpectRefused({.environment = With(kMpirun, {{"PMIX_RANK", "2"}})},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=1"), HasSubstr("PMIX_RANK=2")));
  ExpectRefused({.environment = With(kSrun, {{"PBS_NODENUM", "0"}})},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("SLURM_NODEID=1"), HasSubstr("PBS_NODENUM=0")));
  ExpectRefused({.environment = kMpirun,
                 .pmix = PmixTask{.rank = 1, .task_count = 4, .tasks_on_this_node = 1}},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("OMPI_COMM_WORLD_SIZE=3"), HasSubstr("job size=4")));
}

TEST(LaunchEnvironmentTest, ALaunchUsesAtMostItsAllocation) {
  ExpectPlace({.environment = kPjm, .node_count = "8"}, 7, 8);
  ExpectRefused({.environment = kPjm, .node_count = "13"}, ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("--node-count=13"), HasSubstr("PJM_NODE=12")));
  ExpectRefused({.environment = With(kPbs, {{"PBS_NODEFILE", "/x"}}),
                 .node_count = "3",
                 .node_file = "a\nb\n"},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("--node-count=3"), HasSubstr("hosts in $PBS_NODEFILE=2")));
}

TEST(LaunchEnvironmentTest, ARankIsBelowTheNumberOfNodes) {
  ExpectRefused({.environment = {}, .node_rank = "4", .node_count = "4"},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("--node-rank=4"), HasSubstr("--node-count=4")));
  ExpectRefused({.environment = With(kPbs, {{"PBS_NUM_NODES", "2"}})},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("PBS_NODENUM=2"), HasSubstr("PBS_NUM_NODES=2")));
}

TEST(LaunchEnvironmentTest, ValuesThatAreNoNumbersAreNamed) {
  for (const char* wrong : {"x", "-1", "1 ", "0x1", "1.0", "99999", "4294967297", "2(x3)"}) {
    ExpectRefused({.environment = With(kSrun, {{"SLURM_NODEID", wrong}})},
                  ErrorCode::kInvalidArgument, HasSubstr("SLURM_NODEID='"));
    ExpectRefused({.environment = {}, .node_rank = wrong}, ErrorCode::kInvalidArgument,
                  HasSubstr("--node-rank='"));
    ExpectRefused({.environment = {}, .node_count = wrong}, ErrorCode::kInvalidArgument,
                  HasSubstr("--node-count='"));
  }
  ExpectRefused({.environment = {}, .node_count = "0"}, ErrorCode::kInvalidArgument,
                HasSubstr("from 1 to 65536"));
  ExpectRefused({.environment = With(kPjm, {{"PJM_NODE", "many"}})}, ErrorCode::kInvalidArgument,
                HasSubstr("PJM_NODE='many'"));
  ExpectRefused({.environment = With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "0"}})},
                ErrorCode::kInvalidArgument, HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE='0'"));
  // A variable that is set to nothing is not set.
  ExpectPlace({.environment = With(kSrun, {{"PBS_NODENUM", ""}})}, 1, 4);
}

TEST(LaunchEnvironmentTest, GridEngineTellsTheJobAlone) {
  ExpectNoPlace({.environment = kGridEngine},
                AllOf(HasSubstr("Grid Engine"), HasSubstr("$PE_HOSTFILE")));
  const LaunchSources given = {.environment = kGridEngine, .node_rank = "1", .node_count = "4"};
  ExpectPlace(given, 1, 4);
  EXPECT_EQ(FindLaunch(given)->job.name, "77");
  EXPECT_EQ(FindLaunch(given)->job.source, "JOB_ID");
  // mpirun in a job of Grid Engine.
  ExpectPlace({.environment = With(kMpirun, kGridEngine)}, 1, 3);
}

TEST(LaunchEnvironmentTest, AJobsNameMayBeChosen) {
  const Environment chosen = With(kSrun, {{"FOREBAY_JOB_ID", "night-run"}});
  EXPECT_EQ(FindLaunch({.environment = chosen})->job.name, "night-run");
  EXPECT_EQ(FindLaunch({.environment = chosen, .job = "other"})->job.name, "other");
  EXPECT_EQ(FindLaunch({.environment = chosen, .job = "other"})->job.source,
            "daemon.job_id (--job)");
  ExpectRefused({.environment = With(kSrun, {{"PBS_JOBID", "12"}})},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("SLURM_JOB_ID='4711'"), HasSubstr("PBS_JOBID='12'")));
  EXPECT_TRUE(FindLaunch({.environment = With(kSrun, {{"PBS_JOBID", "4711"}})}).has_value());
  ExpectRefused({.environment = With(kGridEngine, {{"SLURM_JOB_ID", "12"}})},
                ErrorCode::kFailedPrecondition,
                AllOf(HasSubstr("SLURM_JOB_ID='12'"), HasSubstr("JOB_ID='77'")));
  for (const std::string& wrong :
       {std::string("a/b"), std::string(".."), std::string("a b"), std::string(65, 'x')}) {
    ExpectRefused({.environment = {}, .job = wrong}, ErrorCode::kInvalidArgument,
                  HasSubstr("(--job): "));
  }
}

}  // namespace forebay::rendezvous::launch_environment_test
