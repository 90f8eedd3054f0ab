// Clients of a daemon whose GFS fails for longer than the daemon waits: the client library asks
// again, and no sample is lost or repeated.
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "forebay/client.h"
#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

class GfsOutageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!bench::GfsProcess::IsPossible()) GTEST_SKIP() << "no /dev/fuse on this machine";
    rig_.emplace(RigOptions{.records = 1024, .ssd = false, .served = "mount"});
    gfs_ = std::make_unique<bench::GfsProcess>(
        std::vector<std::string>{rig_->folder() + "/gfs", rig_->folder() + "/mount"});
    ASSERT_TRUE(gfs_->AwaitReady());
    ASSERT_TRUE(gfs_->Control("fault eio * ops=read count=0"));
    // It gives up at once, so that it is the client that has to be patient.
    daemon_ = rig_->Start({"--set", "stage.retry_for=0"});
    auto client = Client::Connect({.address = "unix:" + rig_->socket_path()});
    ASSERT_TRUE(client.has_value()) << client.error().ToString();
    client_ = std::move(*client);
  }
  void TearDown() override {
    client_.reset();
    daemon_.reset();
    gfs_.reset();
  }

  std::unique_ptr<BatchStream> Open(std::int64_t retry_for_ms) {
    StreamOptions options;
    options.dataset = kDataset;
    options.global_batch = 64;
    options.retry_for_ms = retry_for_ms;
    auto stream = client_->Open(options);
    EXPECT_TRUE(stream.has_value()) << stream.error().ToString();
    return stream.has_value() ? std::move(*stream) : nullptr;
  }

  // Reads to the end; every record once, and as it was written. `late_errors`: so many calls may
  // still bring an error of a read that was under way when the outage ended.
  void ReadRest(BatchStream& stream, int late_errors = 0) {
    std::set<std::uint64_t> seen;
    std::uint64_t count = 0;
    for (;;) {
      auto batch = stream.Next();
      for (; !batch.has_value() && late_errors > 0; --late_errors) {
        EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
        batch = stream.Next();
      }
      ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
      if (!*batch) break;
      const auto tensor = (*batch)->Tensor("x");
      ASSERT_TRUE(tensor.has_value()) << tensor.error().ToString();
      for (std::uint32_t i = 0; i < (*batch)->sample_count(); ++i, ++count) {
        const std::uint64_t id = (*batch)->sample_ids()[i].value();
        seen.insert(id);
        const auto* row = reinterpret_cast<const std::byte*>(tensor->data) + i * kRecordBytes;
        ASSERT_TRUE(IsRecord(id, {row, kRecordBytes})) << "record " << id;
      }
    }
    EXPECT_EQ(count, 1024U);
    EXPECT_EQ(seen.size(), 1024U);
    EXPECT_TRUE(stream.Finish().has_value());
  }

  std::optional<DaemonRig> rig_;
  std::unique_ptr<bench::GfsProcess> gfs_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(GfsOutageTest, TheClientAsksAgainUntilTheGfsIsBack) {
  const auto stream = Open(StreamOptions().retry_for_ms);
  ASSERT_NE(stream, nullptr);
  std::jthread mends([&] {
    EXPECT_TRUE(Eventually([&] { return stream->stats().retries >= 3; }));
    EXPECT_TRUE(gfs_->Control("clear"));
  });
  ReadRest(*stream);
  EXPECT_GE(stream->stats().retries, 3U);
}

TEST_F(GfsOutageTest, BeyondTheTimeForItTheObjectIsNamedAndALaterNextGoesOn) {
  const auto stream = Open(/*retry_for_ms=*/2000);
  ASSERT_NE(stream, nullptr);
  const auto failed = stream->Next();
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(failed.error().message(), HasSubstr("'x.bin'"));
  EXPECT_THAT(failed.error().message(), HasSubstr("retry_for_ms is 2000"));
  EXPECT_GT(stream->stats().retries, 0U);
  ASSERT_TRUE(gfs_->Control("clear"));
  // On a slow machine the time may end while a read that began before the repair still fails.
  ReadRest(*stream, /*late_errors=*/20);
}

// As a daemon that was killed and is started again before the outage is over.
TEST_F(GfsOutageTest, ADaemonThatStartsDuringAnOutageServesAfterIt) {
  client_.reset();
  daemon_.reset();
  ASSERT_TRUE(gfs_->Control("fault eio * ops=all count=0"));
  daemon_ = rig_->Start();
  EXPECT_THAT(rig_->log(), HasSubstr("the first call that needs the directory opens it"));
  auto client = Client::Connect({.address = "unix:" + rig_->socket_path()});
  ASSERT_TRUE(client.has_value()) << client.error().ToString();
  client_ = std::move(*client);
  ASSERT_TRUE(gfs_->Control("clear"));
  const auto stream = Open(StreamOptions().retry_for_ms);
  ASSERT_NE(stream, nullptr);
  ReadRest(*stream);
}

}  // namespace
}  // namespace forebay::integration
