// A GFS that does not answer requests about one object: others are read, the daemon says what it
// waits for, and ends in time when it is asked to.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "tests/integration/daemon_process.h"
#include "tests/integration/raw_client.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct HangCase {
  const char* name;
  const char* operations;  // of the object that are not answered
  const char* io_backend;
};
void PrintTo(const HangCase& one, std::ostream* out) { *out << one.name; }

// Two data sets of one object each: "held", whose object hangs, with more extents than there are
// readers; and "sound".
class GfsHangTest : public ::testing::TestWithParam<HangCase> {
 protected:
  void SetUp() override {
    if (!bench::GfsProcess::IsPossible()) GTEST_SKIP() << "no /dev/fuse on this machine";
    std::string pattern = "/tmp/fbhXXXXXX";
    folder_ = mkdtemp(pattern.data());
    // In folders of their own: some kernels look up the names of one folder one after the other.
    std::filesystem::create_directory(folder_ + "/mount");
    for (const std::string name : {"held", "sound"}) {
      std::filesystem::create_directories(folder_ + "/gfs/" + name);
      std::ofstream(folder_ + "/gfs/" + name + "/" + name + ".bin", std::ios::binary)
          << std::string(8 << 20, 'x');
    }
    std::ofstream config(folder_ + "/f.toml");
    config << "[daemon]\nsocket = \"" << folder_ << "/run/s\"\nstate_dir = \"" << folder_
           << "/state\"\njob_id = \"job-1\"\nio_backend = \"" << GetParam().io_backend
           << "\"\n[tier.ram]\ncapacity = \"64MiB\"\n[slots]\ncapacity = \"8MiB\"\n"
           << "[stage]\nreaders = 2\nrequests = 2\nhung_after = 1\n";
    for (const char* dataset : {"held", "sound"}) {
      config << "[[dataset]]\nname = \"" << dataset << "\"\npath = \"" << folder_
             << "/mount\"\nformat = \"raw\"\nfiles = [\"x=" << dataset << "/" << dataset
             << ".bin\"]\nshape = [4096]\nextent = \"1MiB\"\n";
    }
    config.close();
    gfs_ = std::make_unique<bench::GfsProcess>(
        std::vector<std::string>{folder_ + "/gfs", folder_ + "/mount"});
    ASSERT_TRUE(gfs_->AwaitReady());
    ASSERT_TRUE(gfs_->Control(std::string("fault hang *held.bin count=0 ops=") +
                              GetParam().operations));
    Start();
  }
  void TearDown() override {
    daemon_.reset();
    gfs_.reset();
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  void Start() {
    daemon_ = std::make_unique<DaemonProcess>(
        std::vector<std::string>{"--config", folder_ + "/f.toml"}, folder_ + "/log");
    ASSERT_NE(daemon_->ready_line(), "") << log();
  }
  std::string log() const { return ReadText(folder_ + "/log"); }
  std::string socket_path() const { return folder_ + "/run/s"; }
  static std::string StateOf(const v1::StatusReply& status, const std::string& name) {
    for (const v1::DatasetStatus& dataset : status.datasets()) {
      if (dataset.name() == name) return dataset.state();
    }
    return "";
  }

  std::string folder_;
  std::unique_ptr<bench::GfsProcess> gfs_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_P(GfsHangTest, OtherObjectsAreReadAndTheHungOneIsNamedUntilItAnswers) {
  RawClient client(socket_path());
  ASSERT_TRUE(Eventually([&] {
    const v1::StatusReply status = client.Status();
    return StateOf(status, "sound") == "staged" && status.gfs().hung() > 0;
  })) << client.Status().ShortDebugString();
  EXPECT_GT(gfs_->InjectedCount(), 0U);
  const v1::StatusReply hung = client.Status();
  EXPECT_THAT(hung.gfs().hung_oldest(), HasSubstr("/mount/held/held.bin'"));
  EXPECT_GE(hung.gfs().hung_oldest_ms(), 1000U);
  EXPECT_NE(StateOf(hung, "held"), "staged");
  EXPECT_THAT(log(), AllOf(HasSubstr("the GFS has not answered for"), HasSubstr("held.bin")));
  ASSERT_TRUE(gfs_->Control("clear"));
  ASSERT_TRUE(Eventually([&] {
    const v1::StatusReply status = client.Status();
    return StateOf(status, "held") == "staged" && status.gfs().hung() == 0;
  })) << client.Status().ShortDebugString();
  EXPECT_THAT(log(), HasSubstr("the GFS answers again"));
}

TEST_P(GfsHangTest, SigtermEndsTheDaemonInTimeAndNamesTheObject) {
  RawClient client(socket_path());
  ASSERT_TRUE(Eventually([&] { return gfs_->InjectedCount() > 0; }));
  const auto asked = std::chrono::steady_clock::now();
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0) << log();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - asked);
  EXPECT_LT(took.count(), limits::kDrainDeadlineMs);
  EXPECT_THAT(log(), AllOf(HasSubstr("ends without"), HasSubstr("held.bin")));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/run"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/state/forebayd.lock"));
  ASSERT_TRUE(gfs_->Control("clear"));
  Start();
  RawClient next(socket_path());
  EXPECT_TRUE(Eventually([&] { return StateOf(next.Status(), "held") == "staged"; }));
}

INSTANTIATE_TEST_SUITE_P(
    Operations, GfsHangTest,
    ::testing::Values(HangCase{"Reads", "read", "auto"},
                      HangCase{"ReadsOfThreads", "read", "threads"},
                      HangCase{"Opens", "open", "auto"},
                      HangCase{"LookUps", "lookup,getattr", "auto"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace forebay::integration
