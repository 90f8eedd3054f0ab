// Two daemons that one mpirun starts, with peer.transport = "mpi": every sample that comes over MPI
// is right, all end together, and a daemon that is killed ends the job, which goes on from where
// its reader was. Also what a daemon says that cannot use MPI.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kNodes = 2;
constexpr std::uint32_t kBatch = 256;  // half of it is more than what comes with the answer
constexpr std::uint64_t kRecords = 4096;

// mpirun with two daemons, which find each other in a directory as other jobs do.
class MpiJob {
 public:
  explicit MpiJob(const DaemonRig& rig) : rig_(rig) {
    std::filesystem::create_directory(rig.rendezvous_path());
    const std::string folder = rig.folder();
    const std::string nodes = rig.nodes_folder();
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) std::filesystem::remove(ReadyFile(rank));
    const std::string script =
        "r=$OMPI_COMM_WORLD_RANK; echo $$ > " + folder + "/pid$r; exec " + FOREBAYD +
        " --node-rank $r --node-count 2" +  // two nodes of one machine
        " --config " + folder + "/f.toml --socket " + nodes + "/run$r/s" +
        " --set nodes.rendezvous=directory:" + rig.rendezvous_path() +
        " --set peer.interface=lo --set peer.transport=mpi --set peer.module=" +
        FOREBAY_MPI_MODULE + " --set daemon.state_dir=" + nodes + "/state$r" +
        " --set tier.ssd.directory=" + folder + "/ssd$r --ready-fd 3 3> " + folder +
        "/ready$r 2>> " + nodes + "/log$r";
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
        setenv(name, "1", 1);
      }
      // Launchers of one machine make and remove a folder for all of them, and fail at times where
      // two do so at once.
      setenv("OMPI_MCA_orte_tmpdir_base", folder.c_str(), 1);
      // Containers forbid the copy between processes that Open MPI would use on one machine.
      setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
      dup2(open((folder + "/mpirun").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
      execlp("mpirun", "mpirun", "--oversubscribe", "-n", "2", "sh", "-c", script.c_str(),
             static_cast<char*>(nullptr));
      _exit(127);
    }
  }
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  ~MpiJob() {
    if (outcome_) return;
    kill(pid_, SIGTERM);  // mpirun passes it on
    Wait();
  }

  bool AwaitReady() const {
    return Eventually([this] {
      return ReadText(ReadyFile(0)).starts_with("READY") &&
             ReadText(ReadyFile(1)).starts_with("READY");
    });
  }
  pid_t daemon_pid(std::uint32_t rank) const {
    return std::stoi(ReadText(rig_.folder() + "/pid" + std::to_string(rank)));
  }
  // The exit code of mpirun.
  std::optional<int> Wait() {
    Eventually([this] {
      int status = 0;
      if (!outcome_ && waitpid(pid_, &status, WNOHANG) == pid_) {
        outcome_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
      return outcome_.has_value();
    });
    return outcome_;
  }

 private:
  std::string ReadyFile(std::uint32_t rank) const {
    return rig_.folder() + "/ready" + std::to_string(rank);
  }

  const DaemonRig& rig_;
  pid_t pid_ = -1;
  std::optional<int> outcome_;
};

class NodesMpiTest : public ::testing::Test {
 protected:
  explicit NodesMpiTest(const RigOptions& options = {.records = kRecords, .ram = "16MiB"})
      : rig_(options) {}
  void TearDown() override {
    if (!HasFailure()) return;
    std::cerr << "mpirun:\n" << ReadText(rig_.folder() + "/mpirun");
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      std::cerr << "log of node " << rank << ":\n" << LogOf(rank);
    }
  }
  bool StartJob() {
    job_ = std::make_unique<MpiJob>(rig_);
    return job_->AwaitReady();
  }
  std::string LogOf(std::uint32_t rank) const { return ReadText(rig_.node_log(rank)); }
  std::unique_ptr<RawClient> ClientOf(std::uint32_t rank) const {
    return std::make_unique<RawClient>(rig_.node_socket(rank));
  }
  // Reads on node 0, in mode `global`, so node 1 supplies half of the samples.
  EpochCounts Read(std::uint64_t first_step = 0, std::uint64_t end_step = kRecords / kBatch) {
    const auto client = ClientOf(0);
    return ReadEpoch(*client, "train", {},
                     {.global_batch = kBatch, .first_step = first_step, .end_step = end_step});
  }
  v1::NodeStatus SeenByNode0() {
    v1::NodesReply reply;
    const auto context = NewContext();
    EXPECT_TRUE(ClientOf(0)->admin().Nodes(context.get(), {}, &reply).ok());
    EXPECT_EQ(reply.nodes_size(), 2);
    return reply.nodes(1);
  }
  void FinishAll() {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      v1::DrainRequest request;
      request.set_after_all(true);
      v1::DrainReply reply;
      const auto context = NewContext();
      EXPECT_TRUE(ClientOf(rank)->admin().Drain(context.get(), request, &reply).ok());
    }
  }
  // A whole job: one epoch on node 0, of which half of the samples come over MPI.
  void RunAJob() {
    ASSERT_TRUE(StartJob());
    const EpochCounts counts = Read();
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.distinct, kRecords);
    EXPECT_EQ(counts.wrong, 0U);
    const v1::NodeStatus node = SeenByNode0();
    EXPECT_GT(node.mpi_bytes(), rig_.dataset_bytes() / 4);
    EXPECT_LE(node.mpi_bytes(), node.received_bytes());
    EXPECT_EQ(node.failed_calls(), 0U);
    FinishAll();
    EXPECT_EQ(job_->Wait(), 0) << "all ranks have ended MPI";
  }
  // Starts two daemons without mpirun, and expects the error that they end with.
  void ExpectRefusal(const std::vector<std::string>& first, const std::vector<std::string>& second,
                     const std::string& text) {
    const auto daemon0 = rig_.StartNode(0, kNodes, first);
    const auto daemon1 = rig_.StartNode(1, kNodes, second);
    EXPECT_EQ(daemon0->Wait(), 1);
    EXPECT_EQ(daemon1->Wait(), 1);
    EXPECT_THAT(LogOf(0), HasSubstr(text));
  }

  DaemonRig rig_;
  std::unique_ptr<MpiJob> job_;
};

TEST_F(NodesMpiTest, EverySampleThatComesOverMpiIsRight) { RunAJob(); }

// Samples are compressed, in a pack or on the tiers. Their owner decodes them, and sends the rows.
class NodesMpiPackTest : public NodesMpiTest, public ::testing::WithParamInterface<RecordFiles> {
 protected:
  NodesMpiPackTest()
      : NodesMpiTest({.records = kRecords,
                      .files = GetParam(),
                      .extent = "256KiB",
                      .ram = "16MiB",
                      .compress = GetParam() == RecordFiles::kPack ? "off" : "fast"}) {}
};

TEST_P(NodesMpiPackTest, RowsThatTheOwnerHasDecodedAreRight) { RunAJob(); }

INSTANTIATE_TEST_SUITE_P(Forms, NodesMpiPackTest,
                         ::testing::Values(RecordFiles::kPack, RecordFiles::kOneFile),
                         [](const auto& tested) -> std::string {
                           return tested.param == RecordFiles::kPack ? "Pack" : "AtStaging";
                         });

TEST_F(NodesMpiTest, ADaemonThatIsKilledEndsTheJobAndItsReaderGoesOnInTheNext) {
  constexpr std::uint64_t kStep = 7;
  ASSERT_TRUE(StartJob());
  EpochCounts whole = Read();
  EpochCounts parts = Read(0, kStep);
  kill(job_->daemon_pid(1), SIGKILL);
  const std::optional<int> outcome = job_->Wait();
  ASSERT_TRUE(outcome.has_value()) << "the other daemon has ended, too";
  EXPECT_NE(*outcome, 0);
  ASSERT_TRUE(StartJob());
  EpochCounts rest = Read(kStep);
  EXPECT_EQ(rest.error, "");
  parts.by_position.merge(rest.by_position);
  EXPECT_EQ(whole.by_position.size(), kRecords);
  EXPECT_EQ(parts.by_position, whole.by_position);
  EXPECT_GT(SeenByNode0().mpi_bytes(), 0U);
}

TEST_F(NodesMpiTest, ADaemonThatEndsAloneEndsTheJob) {
  ASSERT_TRUE(StartJob());
  kill(job_->daemon_pid(1), SIGTERM);
  const std::optional<int> outcome = job_->Wait();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_NE(*outcome, 0);
  EXPECT_THAT(LogOf(1), HasSubstr("a rank of MPI is lost"));
}

TEST_F(NodesMpiTest, AModuleThatIsNotThereIsNamed) {
  const std::vector<std::string> options = {"--set", "peer.transport=mpi", "--set",
                                            "peer.module=/nowhere/libforebay_mpi.so"};
  ExpectRefusal(options, options, "peer.module /nowhere/libforebay_mpi.so: cannot be loaded");
}

TEST_F(NodesMpiTest, DaemonsThatNoMpirunHasStartedAreRefused) {
  const std::vector<std::string> options = {
      "--set", "peer.transport=mpi", "--set",
      std::string("peer.module=") + FOREBAY_MPI_MODULE};
  ExpectRefusal(options, options, "MPI has 1 ranks, and the job has 2 nodes");
}

TEST_F(NodesMpiTest, NodesOfDifferentTransportsAreRefused) {
  ExpectRefusal({"--set", "peer.transport=mpi"}, {}, "peer.transport");
}

TEST_F(NodesMpiTest, TheDaemonIsLinkedWithoutMpi) {
  const std::string listed = rig_.folder() + "/ldd";
  ASSERT_EQ(std::system(("ldd " FOREBAYD " > " + listed).c_str()), 0);
  EXPECT_THAT(ReadText(listed), HasSubstr("libc.so"));
  EXPECT_THAT(ReadText(listed), Not(HasSubstr("libmpi")));
}

}  // namespace
}  // namespace forebay::integration
