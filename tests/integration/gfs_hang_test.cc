// A GFS that does not answer requests about one object: others are read, the daemon says what it
// waits for, and ends in time when it is asked to.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "proto/contract/check.h"
#include "proto/contract/order_spec.h"
#include "tests/integration/daemon_process.h"
#include "tests/integration/raw_client.h"

namespace forebay::integration {
namespace {

// The promise is ten seconds (limits::kDrainDeadlineMs); a machine that stalls may need more.
constexpr std::chrono::seconds kHungEndsWithin(30);

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
class HangRig : public ::testing::Test {
 protected:
  // Mounts, with `fault` in place, and starts the daemon.
  void Mount(const std::string& io_backend, const std::string& ram, const std::string& fault) {
    MountOnly(io_backend, ram, fault);
    if (gfs_) Start();
  }
  void MountOnly(const std::string& io_backend, const std::string& ram,
                 const std::string& fault) {
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
    std::ofstream(folder_ + "/gfs/odd.txt") << "1\n3\n";
    std::ofstream config(folder_ + "/f.toml");
    config << "[daemon]\nsocket = \"" << folder_ << "/run/s\"\nstate_dir = \"" << folder_
           << "/state\"\njob_id = \"job-1\"\nio_backend = \"" << io_backend
           << "\"\n[tier.ram]\ncapacity = \"" << ram << "\"\n[slots]\ncapacity = \"8MiB\"\n"
           << "[stage]\nreaders = 2\nrequests = 2\nhung_after = 1\n";
    for (const char* dataset : {"held", "sound"}) {
      config << "[[dataset]]\nname = \"" << dataset << "\"\npath = \"" << folder_
             << "/mount\"\nformat = \"raw\"\nfiles = [\"x=" << dataset << "/" << dataset
             << ".bin\"]\nshape = [4096]\nextent = \"1MiB\"\n"
             << "[dataset.splits]\nodd = \"odd.txt\"\n";
    }
    config.close();
    gfs_ = std::make_unique<bench::GfsProcess>(
        std::vector<std::string>{folder_ + "/gfs", folder_ + "/mount"});
    ASSERT_TRUE(gfs_->AwaitReady());
    ASSERT_TRUE(fault.empty() || gfs_->Control(fault));
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

std::string HangOf(const std::string& operations) {
  return "fault hang *held.bin count=0 ops=" + operations;
}

class GfsHangTest : public HangRig, public ::testing::WithParamInterface<HangCase> {
 protected:
  void SetUp() override {
    Mount(GetParam().io_backend, "64MiB", HangOf(GetParam().operations));
  }
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
  EXPECT_LT(took, kHungEndsWithin);
  EXPECT_THAT(log(), AllOf(HasSubstr("exits without waiting for"), HasSubstr("held.bin")));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/run"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/state/forebayd.lock"));
  ASSERT_TRUE(gfs_->Control("clear"));
  Start();
  RawClient next(socket_path());
  EXPECT_TRUE(Eventually([&] { return StateOf(next.Status(), "held") == "staged"; }));
}

// In blocks, which may be read where the data set does not fit.
v1::StreamRequest OpenInBlocks(RawClient& client, const std::string& name) {
  const v1::DescribeReply dataset = client.Describe(name);
  v1::StreamRequest open = GoodOpen(dataset, 64);
  OrderSpec order;
  order.seed = 7;
  order.sample_count = dataset.selected_count();
  order.selection_fingerprint = dataset.selection_fingerprint();
  order.tail = TailPolicy::kShort;
  order.shape = {.mode = OrderMode::kBlock, .block_samples = 256, .window_runs = 2};
  const auto spec = order.Encode();
  open.mutable_open()->set_order_spec(spec.data(), spec.size());
  return open;
}

// Pulls batches of epoch 0, `steps` of them, one at a time; what came instead of one, or empty.
std::string ReadSteps(RawClient& client, const std::string& dataset, std::uint64_t steps) {
  RawStream stream(client);
  stream.Write(OpenInBlocks(client, dataset));
  if (!stream.Read().has_value()) return stream.End().error_message();
  for (std::uint64_t step = 0; step < steps; ++step) {
    v1::StreamRequest request = PullOf(step, 1);
    stream.Write(request);
    const auto reply = stream.Read();
    if (!reply.has_value()) return stream.End().error_message();
    if (reply->batches_size() != 1) return reply->ShortDebugString();
    request.Clear();
    request.add_release(reply->batches(0).id());
    stream.Write(request);
  }
  return "";
}

class GfsHangStreamTest : public HangRig {};

TEST_F(GfsHangStreamTest, AStreamThatWaitsForAHungObjectDoesNotKeepOthersThatAreReadFromTheGfs) {
  // Neither data set fits the tier, so each epoch reads the GFS.
  Mount("auto", "6MiB", "");
  if (IsSkipped()) return;
  RawClient client(socket_path());
  ASSERT_TRUE(Eventually([&] {
    const v1::StatusReply status = client.Status();
    return StateOf(status, "held") == "partly staged" &&
           StateOf(status, "sound") == "partly staged";
  })) << client.Status().ShortDebugString();
  constexpr std::uint64_t kSteps = (8 << 20) / 4096 / 64;
  ASSERT_EQ(ReadSteps(client, "held", kSteps), "");
  ASSERT_TRUE(gfs_->Control(HangOf("read")));
  RawStream held(client);
  held.Write(OpenInBlocks(client, "held"));
  ASSERT_TRUE(held.Read().has_value());
  std::uint64_t asked = 0;
  std::uint64_t came = 0;
  const auto read = [&] {
    const auto reply = held.Read();
    if (!reply.has_value()) return false;
    came += static_cast<std::uint64_t>(reply->batches_size());
    v1::StreamRequest request;
    for (const v1::Batch& batch : reply->batches()) request.add_release(batch.id());
    held.Write(request);
    return true;
  };
  // Until it meets an extent that is not there.
  while (client.Status().gfs().hung() == 0 && asked < kSteps) {
    held.Write(PullOf(asked++, 1));
    if (Eventually([&] {
          const v1::StatusReply status = client.Status();
          return status.gfs().hung() > 0 || status.streams(0).batches() == asked;
        }) && client.Status().streams(0).batches() == asked) {
      ASSERT_TRUE(read());
    }
  }
  ASSERT_GT(client.Status().gfs().hung(), 0U) << log();
  EXPECT_EQ(ReadSteps(client, "sound", kSteps), "") << log();
  ASSERT_TRUE(gfs_->Control("clear"));
  while (came < asked) ASSERT_TRUE(read());
}

class GfsHangSplitTest : public HangRig {};

// More readers ask for the split than gRPC has threads.
TEST_F(GfsHangSplitTest, OthersAreServedWhileASplitFileHangsAndTheDaemonEndsInTime) {
  Mount("auto", "64MiB", "fault hang *odd.txt count=0 ops=open");
  if (IsSkipped()) return;
  RawClient client(socket_path());
  ASSERT_TRUE(Eventually([&] { return StateOf(client.Status(), "sound") == "staged"; }));
  v1::DescribeRequest odd;
  odd.set_dataset("sound");
  odd.set_selection("list:odd");
  const auto describe = [&] {
    v1::DescribeReply reply;
    return client.data().Describe(NewContext().get(), odd, &reply);
  };
  std::vector<std::future<grpc::Status>> held;
  for (int i = 0; i < 40; ++i) held.push_back(std::async(std::launch::async, describe));
  ASSERT_TRUE(Eventually([&] { return gfs_->InjectedCount() >= 2; }));
  EXPECT_EQ(ReadSteps(client, "sound", 4), "") << log();
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0) << log();
  for (auto& call : held) EXPECT_EQ(call.get().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(log(), AllOf(HasSubstr("exits without waiting for"), HasSubstr("odd.txt")));
}

class GfsHangCheckTest : public HangRig {};

TEST_F(GfsHangCheckTest, CheckEndsInTimeAndSaysWhatItDoesNotKnow) {
  Mount("auto", "64MiB", HangOf("lookup,getattr"));
  if (IsSkipped()) return;
  // Where a daemon looks up the same name, the kernel lets nobody end that waits for it.
  daemon_->Kill();
  const CommandEnd end = RunForebayd({"--config", folder_ + "/f.toml", "--check"}, folder_);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_GT(gfs_->InjectedCount(), 0U);
  EXPECT_THAT(end.output, AllOf(HasSubstr("data set 'held': size not known: the file system of "),
                                HasSubstr("has not answered within 10 s")));
  EXPECT_THAT(end.errors, HasSubstr("WARNING: whether the tiers hold these data sets is not known: "
                                    "held"));
}

INSTANTIATE_TEST_SUITE_P(
    Operations, GfsHangTest,
    ::testing::Values(HangCase{"Reads", "read", "auto"},
                      HangCase{"ReadsOfThreads", "read", "threads"},
                      HangCase{"Opens", "open", "auto"},
                      HangCase{"LookUps", "lookup,getattr", "auto"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

class GfsHangStartTest : public HangRig {};

TEST_F(GfsHangStartTest, SigtermEndsADaemonWhoseStartTheGfsHolds) {
  MountOnly("threads", "64MiB", "fault hang ** count=0 ops=all");
  if (!gfs_) return;  // skipped
  DaemonProcess daemon({"--config", folder_ + "/f.toml"}, folder_ + "/log");
  ASSERT_TRUE(Eventually([this] { return gfs_->InjectedCount() > 0; }));
  const auto asked = std::chrono::steady_clock::now();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, kHungEndsWithin);
  EXPECT_THAT(log(), HasSubstr("a file system that does not answer"));
}

}  // namespace
}  // namespace forebay::integration
