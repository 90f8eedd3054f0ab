// What a daemon needs of its memory to begin.
#include <stdlib.h>

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/daemon/daemon.h"

namespace forebay::daemon {
namespace {

using ::testing::HasSubstr;

class DaemonStartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "fbdXXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    config_.socket = folder_ + "/run/forebayd.sock";
    config_.job_id = "daemon-start-test";
    config_.slots_capacity = "1MiB";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  Config config_ = DefaultConfig();
};

// The reserve takes whole huge pages: 33 MiB are 34.
TEST_F(DaemonStartTest, TheReserveLeavesRoomForTheLargestExtent) {
  config_.ram_capacity = "97MiB";
  for (const char* too_large : {"33MiB", "97MiB", "98MiB", "1TiB"}) {
    config_.ram_scratch_reserve = too_large;
    const auto daemon = Daemon::Start(config_);
    ASSERT_FALSE(daemon.has_value()) << too_large;
    EXPECT_EQ(daemon.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(daemon.error().message(), HasSubstr("lower the one or raise the other"));
  }
  config_.ram_scratch_reserve = "32MiB";
  const auto daemon = Daemon::Start(config_);
  EXPECT_TRUE(daemon.has_value()) << daemon.error().ToString();
}

}  // namespace
}  // namespace forebay::daemon
