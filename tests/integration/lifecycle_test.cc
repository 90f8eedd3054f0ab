// A daemon's life, from READY to an empty directory.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(LifecycleTest, SaysReadyOnceClientsMayConnect) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  EXPECT_EQ(daemon->ready_line(), "READY unix:" + rig.socket_path() + "\n");
  RawClient client(rig.socket_path());
  v1::HelloReply reply;
  const grpc::Status hello = client.Hello(client.GoodHello(), reply);
  EXPECT_TRUE(hello.ok()) << hello.error_message();
  EXPECT_THAT(reply.datasets(), ::testing::ElementsAre(kDataset));
  EXPECT_EQ(reply.generation(), client.socket().hello.generation);
  EXPECT_EQ(client.Status().pid(), daemon->pid());
}

TEST(LifecycleTest, StatusNamesWhoReads) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient named(rig.socket_path());
  RawClient nameless(rig.socket_path());
  v1::HelloRequest hello = named.GoodHello();
  hello.set_client_name("resnet \x1b[31m rank 3");
  v1::HelloReply reply;
  ASSERT_TRUE(named.Hello(hello, reply).ok());
  RawStream first(named);
  RawStream second(nameless);
  v1::StreamRequest open = GoodOpen(named.Describe(kDataset), 64);
  first.Write(open);
  ASSERT_TRUE(first.Read().has_value());
  open.mutable_open()->set_stream_name("validation");
  second.Write(open);
  ASSERT_TRUE(second.Read().has_value());
  const v1::StatusReply status = nameless.Status();
  ASSERT_EQ(status.streams_size(), 2);
  for (const v1::StreamStatus& stream : status.streams()) {
    EXPECT_EQ(stream.client(), stream.name() == "train" ? "resnet ?[31m rank 3"
                                                        : "pid " + std::to_string(getpid()));
    EXPECT_EQ(stream.client_pid(), getpid());
    EXPECT_EQ(stream.client_uid(), getuid());
  }
}

TEST(LifecycleTest, ADataSetIsReadOnceAndServedWhole) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  for (int epoch = 0; epoch < 2; ++epoch) {
    const EpochCounts counts = ReadEpoch(client);
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.samples, 4096U);
    EXPECT_EQ(counts.distinct, 4096U);
    EXPECT_EQ(counts.wrong, 0U);
    EXPECT_TRUE(counts.trailer);
  }
  AwaitStaged(client);
  EXPECT_EQ(client.Status().gfs().bytes(), rig.dataset_bytes());
  EXPECT_EQ(client.Status().gfs().opens(), 1U);
}

TEST(LifecycleTest, SocketAndDirectoriesAreThisUsersAlone) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  struct stat info {};
  ASSERT_EQ(stat(rig.socket_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  for (const char* folder : {"/run", "/state", "/ssd"}) {
    ASSERT_EQ(stat((rig.folder() + folder).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U) << folder;
  }
}

TEST(LifecycleTest, SigtermDrainsAndLeavesNothing) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  RawStream stream(client);
  stream.Write(GoodOpen(client.Describe(kDataset), 64));
  ASSERT_TRUE(stream.Read().has_value()) << "the stream is open";
  daemon->Signal(SIGTERM);
  const grpc::Status end = stream.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(end.error_message(), HasSubstr("shutting down"));
  EXPECT_EQ(daemon->Wait(), 0);
  EXPECT_THAT(rig.Leftovers(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(rig.folder() + "/run"));
  EXPECT_FALSE(ConnectTo(rig.socket_path()).valid());
}

TEST(LifecycleTest, SigtermWhileStagingLeavesNothing) {
  // Staging takes less time than this process may be kept from running: the signal may be late.
  bool is_in_time = false;
  for (int attempt = 0; attempt < 10 && !is_in_time; ++attempt) {
    const DaemonRig rig({.records = 16384});
    const auto daemon = rig.Start();
    ASSERT_TRUE(Eventually([&] { return rig.SegmentCount() >= 2; }));
    daemon->Signal(SIGTERM);
    EXPECT_EQ(daemon->Wait(), 0);
    // A disk that does not answer in time is not waited for, and may leave the file of a segment.
    if (rig.log().find("exits without waiting for") != std::string::npos) continue;
    is_in_time = rig.SegmentCount() < 64;
    EXPECT_THAT(rig.Leftovers(), IsEmpty());
  }
  EXPECT_TRUE(is_in_time) << "no signal came in time";
}

// The next job on the node has the same SSD directory and another data set.
TEST(LifecycleTest, ADataSetThatIsNotConfiguredAnyMoreKeepsTheSsdOfNoOther) {
  const DaemonRig rig({.records = 16384, .ram = "8MiB"});  // 64 MiB
  const std::vector<std::string> settings = {"--set", "tier.ssd.capacity=96MiB"};
  const auto stage = [&] {
    const auto daemon = rig.Start(settings);
    RawClient client(rig.socket_path());
    const v1::DatasetStatus staged = AwaitStaged(client);
    EXPECT_EQ(staged.state(), "staged") << staged.error();
    EXPECT_EQ(staged.unstaged_bytes(), 0U);
    daemon->Signal(SIGTERM);
    EXPECT_EQ(daemon->Wait(), 0);
  };
  stage();
  EXPECT_THAT(rig.log(), Not(HasSubstr("not configured any more")));
  const std::string path = rig.folder() + "/f.toml";
  std::string config = ReadText(path);
  const std::string name = "\nname = \"" + std::string(kDataset) + "\"";
  ASSERT_NE(config.find(name), std::string::npos) << config;
  config.replace(config.find(name), name.size(), "\nname = \"another\"");
  std::ofstream(path) << config;
  stage();
  EXPECT_THAT(rig.log(), HasSubstr("not configured any more"));
}

TEST(LifecycleTest, DrainEndsItAsSigtermDoes) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  v1::DrainReply reply;
  EXPECT_TRUE(client.admin().Drain(NewContext().get(), {}, &reply).ok());
  EXPECT_EQ(daemon->Wait(), 0);
  EXPECT_THAT(rig.Leftovers(), IsEmpty());
}

TEST(LifecycleTest, ExitsWhenIdleButNotBesideAClient) {
  const DaemonRig rig;
  const auto daemon = rig.Start({"--exit-when-idle-s", "3"});
  {
    RawClient client(rig.socket_path());
    ASSERT_TRUE(Eventually([&] { return client.Status().uptime_ms() > 5000; }));
    EXPECT_TRUE(daemon->running());
  }
  EXPECT_EQ(daemon->Wait(), 0);
  EXPECT_THAT(rig.Leftovers(), IsEmpty());
}

TEST(LifecycleTest, ASecondDaemonIsRefusedAndNamesTheFirst) {
  const DaemonRig rig;
  const auto first = rig.Start();
  const auto second = rig.Start({}, false);
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_EQ(second->ready_line(), "");
  EXPECT_THAT(rig.log(), HasSubstr("pid " + std::to_string(first->pid())));
  // Another socket, but the same SSD.
  const auto third = rig.Start({"--socket", rig.folder() + "/run3/s"}, false);
  EXPECT_EQ(third->Wait(), 1);
  RawClient client(rig.socket_path());
  EXPECT_EQ(client.Status().pid(), first->pid()) << "the first one is unharmed";
  EXPECT_FALSE(std::filesystem::exists(rig.folder() + "/run3"));
}

TEST(LifecycleTest, ARestartedDaemonServesFromSsdAndHeldMemoryStaysReadable) {
  const DaemonRig rig;
  auto daemon = rig.Start();
  RawClient before(rig.socket_path());
  AwaitStaged(before);
  RawStream stream(before);
  stream.Write(GoodOpen(before.Describe(kDataset), 4));
  stream.Write(PullOf(0, 1));
  std::optional<v1::Batch> held;
  while (!held) {
    const auto reply = stream.Read();
    ASSERT_TRUE(reply.has_value());
    if (reply->batches_size() > 0) held = reply->batches(0);
  }
  daemon->Kill();
  daemon = rig.Start();
  RawClient after(rig.socket_path());
  EXPECT_NE(after.socket().hello.generation, before.socket().hello.generation);
  const EpochCounts counts = ReadEpoch(after);
  EXPECT_EQ(counts.error, "");
  EXPECT_EQ(counts.distinct, 4096U);
  EXPECT_EQ(counts.wrong, 0U);
  EXPECT_EQ(after.Status().gfs().bytes(), 0U) << "all of it was on the SSD";
  WireSpan tensor;
  held->fields(0).tensor().copy(reinterpret_cast<char*>(&tensor), sizeof(tensor));
  std::uint64_t id = 0;
  held->sample_ids().copy(reinterpret_cast<char*>(&id), sizeof(id));
  EXPECT_TRUE(IsRecord(id, before.Bytes(tensor).first(kRecordBytes)));
}

// Its bytes are the same, so that every record still proves its id.
TEST(LifecycleTest, ARebuildServesAReplacedObjectAndSoDoesTheNextDaemon) {
  const DaemonRig rig({.ssd = false});
  auto daemon = rig.Start();
  std::uint64_t rebuilt = 0;
  {
    RawClient client(rig.socket_path());
    const std::uint64_t before = AwaitStaged(client).catalog_fingerprint();
    const std::string object = rig.folder() + "/gfs/x.bin";
    std::filesystem::copy_file(object, object + ".new");
    std::filesystem::last_write_time(object + ".new",
                                     std::filesystem::last_write_time(object) +
                                         std::chrono::seconds(10));
    std::filesystem::rename(object + ".new", object);
    rebuilt = AwaitStaged(client, /*rebuild=*/true).catalog_fingerprint();
    EXPECT_NE(rebuilt, before);
    const EpochCounts counts = ReadEpoch(client);
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.distinct, 4096U);
    EXPECT_EQ(counts.wrong, 0U);
  }
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
  daemon = rig.Start();
  RawClient client(rig.socket_path());
  const v1::DatasetStatus status = AwaitStaged(client);
  EXPECT_EQ(status.state(), "staged") << status.error();
  EXPECT_EQ(status.catalog_fingerprint(), rebuilt);
  EXPECT_EQ(ReadEpoch(client).distinct, 4096U);
}

TEST(LifecycleTest, ARamTierBesideAnSsdIsFilledToNineTenths) {
  constexpr std::uint64_t kRamBytes = 32 << 20;
  const DaemonRig rig({.records = 16'384, .ram = "32MiB"});
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  const v1::DatasetStatus status = AwaitStaged(client);
  EXPECT_EQ(status.state(), "staged") << status.unstaged_reason();
  EXPECT_GE(status.ram_bytes(), kRamBytes / 10 * 9);
}

TEST(LifecycleTest, UsageAndConfigurationErrorsHaveTheirExitCode) {
  const DaemonRig rig;
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--set", "tier.ram.capasity=1GiB"},
        std::vector<std::string>{"--set", "tier.ram.capacity=lots"},
        std::vector<std::string>{"--set", "nonsense"}, std::vector<std::string>{"--nonsense"}}) {
    const auto daemon = rig.Start(wrong, false);
    EXPECT_EQ(daemon->Wait(), 2) << wrong.back();
  }
  EXPECT_THAT(rig.log(), HasSubstr("nearest: 'tier.ram.capacity'"));
  for (const char* impossible : {"daemon.job_id=../up", "daemon.metrics_listen=0.0.0.0:0"}) {
    const auto daemon = rig.Start({"--set", impossible}, false);
    EXPECT_EQ(daemon->Wait(), 1) << impossible;
  }
  EXPECT_THAT(rig.log(), HasSubstr("daemon.job_id"));
  EXPECT_THAT(rig.log(), HasSubstr("daemon.metrics_listen"));
  EXPECT_THAT(rig.Leftovers(), IsEmpty());
}

}  // namespace
}  // namespace forebay::integration
