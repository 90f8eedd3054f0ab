// Caps of the job as the configuration says them, and what follows for one node.
#include "server/daemon/gfs_caps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"

namespace forebay::daemon::gfs_caps_test {

using ::testing::HasSubstr;

Config Capped() {
  Config config;
  config.stage_job_bytes_per_second = "50MB";
  config.stage_job_opens_per_second = 100;
  config.stage_job_requests = 10;
  return config;
}

TEST(GfsCapsTest, TheConfigurationIsRead) {
  const auto caps = GfsCaps::Of(Capped());
  ASSERT_TRUE(caps.has_value()) << caps.error().ToString();
  EXPECT_EQ(caps->rates, (stage::CapRates{50e6, 100}));
  EXPECT_TRUE(caps->has_any());
  EXPECT_THAT(caps->Text(), HasSubstr("50000000 bytes/s, 100 opens/s, 10 requests"));
}

TEST(GfsCapsTest, WithoutCapsNothingChanges) {
  Config config;
  config.stage_job_bytes_per_second = "0";
  const auto caps = GfsCaps::Of(config);
  ASSERT_TRUE(caps.has_value()) << caps.error().ToString();
  EXPECT_FALSE(caps->has_any());
  EXPECT_EQ(caps->Text(), "none");
  EXPECT_EQ(caps->RequestBytes(4 * limits::kMiB, 1), 4 * limits::kMiB);
  FOREBAY_EXPECT_OK(caps->CheckNodeCount(16'384));
}

TEST(GfsCapsTest, AWrongSizeNamesItsKey) {
  Config config;
  config.stage_job_bytes_per_second = "fast";
  const auto caps = GfsCaps::Of(config);
  ASSERT_FALSE(caps.has_value());
  EXPECT_THAT(caps.error().message(), HasSubstr("stage.job_bytes_per_second"));
}

TEST(GfsCapsTest, RequestsAreNoLargerThanWhatMayBeSavedUp) {
  GfsCaps caps = *GfsCaps::Of(Capped());
  // 40 ms of a quarter of 50 MB/s, in whole pages.
  EXPECT_EQ(caps.RequestBytes(4 * limits::kMiB, 4), 499'712U);
  EXPECT_EQ(caps.RequestBytes(64 * limits::kKiB, 4), 64 * limits::kKiB);
  EXPECT_EQ(caps.RequestBytes(4 * limits::kMiB, 16'384), 128 * limits::kKiB);
  caps.rates[0] = 1e12;
  EXPECT_EQ(caps.RequestBytes(4 * limits::kMiB, 4), 4 * limits::kMiB);
}

TEST(GfsCapsTest, SizesAreAskedForInBatchesThatTakeSeconds) {
  GfsCaps caps = *GfsCaps::Of(Capped());
  EXPECT_EQ(caps.StatBatchPaths(4), 250U);
  EXPECT_EQ(caps.StatBatchPaths(16'384), 1U);
  caps.rates[1] = 1e6;
  EXPECT_EQ(caps.StatBatchPaths(4), limits::kStatPathsMax);
  caps.rates[1] = 0;
  EXPECT_EQ(caps.StatBatchPaths(4), limits::kStatPathsMax);
}

TEST(GfsCapsTest, EveryNodeNeedsARequest) {
  const GfsCaps caps = *GfsCaps::Of(Capped());
  FOREBAY_EXPECT_OK(caps.CheckNodeCount(10));
  const Status too_many = caps.CheckNodeCount(11);
  ASSERT_FALSE(too_many.has_value());
  EXPECT_THAT(too_many.error().message(), HasSubstr("raise it to 11"));
}

}  // namespace forebay::daemon::gfs_caps_test
