// A file of the job's secret on a file system that other machines may mount: daemons use it, and
// both they and the doctor warn of it. A FUSE mount stands for the network file system.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "tests/integration/daemon_process.h"
#include "tests/integration/daemon_rig.h"
#include "tests/integration/raw_client.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kNodes = 2;

class SecretFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!bench::GfsProcess::IsPossible()) GTEST_SKIP() << "no /dev/fuse on this machine";
    for (const char* name : {"shared", "mount"}) {
      std::filesystem::create_directory(rig_.folder() + "/" + name);
    }
    std::ofstream(rig_.folder() + "/shared/secret") << std::string(32, 's');
    ASSERT_EQ(chmod((rig_.folder() + "/shared/secret").c_str(), 0600), 0);
    gfs_ = std::make_unique<bench::GfsProcess>(
        std::vector<std::string>{rig_.folder() + "/shared", rig_.folder() + "/mount"});
    ASSERT_TRUE(gfs_->AwaitReady());
  }
  std::string Path(const std::string& folder) const { return rig_.folder() + folder + "/secret"; }
  // The log of node 0 of a job whose nodes read the secret from this file.
  std::string LogWith(const std::string& secret) {
    std::vector<std::unique_ptr<DaemonProcess>> daemons;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      daemons.push_back(rig_.StartNode(rank, kNodes, {"--set", "peer.secret=file:" + secret}));
    }
    for (const auto& daemon : daemons) EXPECT_NE(daemon->ready_line(), "");
    EXPECT_EQ(RawClient(rig_.node_socket(0)).Status().node_connections(), "encrypted");
    return ReadText(rig_.node_log(0));
  }
  std::string DoctorWith(const std::string& secret) const {
    return RunForebayd({"--config", rig_.folder() + "/f.toml", "--doctor", "--node-rank", "0",
                        "--node-count", "2", "--set", "nodes.rendezvous=directory:" +
                        rig_.folder() + "/shared", "--set", "peer.interface=lo", "--set",
                        "peer.secret=file:" + secret}, rig_.folder()).output;
  }

  DaemonRig rig_;
  std::unique_ptr<bench::GfsProcess> gfs_;
};

TEST_F(SecretFileTest, ADaemonUsesAFileOnANetworkFileSystemAndWarnsOfIt) {
  EXPECT_THAT(LogWith(Path("/mount")),
              AllOf(HasSubstr("peer.secret: " + Path("/mount") +
                              " lies on a network file system (FUSE)"),
                    HasSubstr("--secret-fd 0"), HasSubstr("tmpfs"),
                    Not(HasSubstr(std::string(32, 's')))));
}

TEST_F(SecretFileTest, AFileOfThisMachineIsNotWarnedOf) {
  EXPECT_THAT(LogWith(Path("/shared")), Not(HasSubstr("network file system")));
  EXPECT_THAT(DoctorWith(Path("/shared")), Not(HasSubstr("network file system")));
}

TEST_F(SecretFileTest, TheDoctorWarnsBeforeTheJobStarts) {
  const std::string output = DoctorWith(Path("/mount"));
  EXPECT_THAT(output, AllOf(HasSubstr("warning  nodes"), HasSubstr("network file system (FUSE)"),
                            HasSubstr("remedy: hand the secret over in FOREBAY_JOB_SECRET"),
                            HasSubstr("a daemon can listen for other nodes"),
                            HasSubstr("encrypted")));
}

}  // namespace
}  // namespace forebay::integration
