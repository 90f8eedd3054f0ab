// Tests how many connections a daemon may have, with few files that it may open and with many.
#include "server/daemon/open_files.h"

#include <sys/resource.h>

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::daemon::open_files_test {

using ::testing::HasSubstr;

// Sets the soft limit of open files while it exists.
class FilesLimit {
 public:
  explicit FilesLimit(rlim_t files) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limit{.rlim_cur = files, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~FilesLimit() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FilesLimit(const FilesLimit&) = delete;
  FilesLimit& operator=(const FilesLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(OpenFilesTest, FilesForTheNodesOfAJobAreEnoughForChannelsToAllOfThem) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 2'912) GTEST_SKIP() << "only " << files.rlim_max << " files may be open";
  const FilesLimit limit(2'912);  // two for each of 1,000 nodes, and 912 others
  EXPECT_EQ(PeerChannelsMax(16'384), 1'000U);
  EXPECT_EQ(PeerChannelsMax(800), 800U);
}

TEST(OpenFilesTest, TooFewFilesForTheNodesOfAJobAreSaidWithTheNumberThatIsNeeded) {
  Config config;
  config.peer_channels = 16;
  const std::uint64_t own = FilesNeeded(config, 1);
  EXPECT_LT(own, 912U);
  const std::uint64_t needed = own + 100 + 16 + 2 * 100;  // 100 nodes, of which 16 are connected to
  {
    const FilesLimit limit(needed);
    EXPECT_FALSE(FindTooFewFiles(config, 100).has_value());
  }
  const FilesLimit limit(needed - 1);
  const auto few = FindTooFewFiles(config, 100);
  ASSERT_TRUE(few.has_value());
  EXPECT_THAT(few->text, HasSubstr("a job of 100 nodes needs up to " + std::to_string(needed)));
  EXPECT_THAT(few->remedy, HasSubstr("raised to " + std::to_string(needed)));
}

TEST(OpenFilesTest, AnEighthOfTheFilesIsForChannelsAndASixteenthForBytesOfSamples) {
  const FilesLimit limit(512);
  EXPECT_EQ(PeerChannelsMax(16'384), 64U);
  EXPECT_EQ(NodesAskedAtATime(16'384), 64U);
  EXPECT_EQ(PayloadConnectionsMax(), 32U);
}

TEST(OpenFilesTest, ManyFilesMakeNoMoreConnectionsThanTheLimitsAllow) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 4 * limits::kPeerChannels) {
    GTEST_SKIP() << "only " << files.rlim_max << " files may be open here";
  }
  const FilesLimit limit(files.rlim_max);
  EXPECT_EQ(PeerChannelsMax(limits::kPeerChannels), limits::kPeerChannels);
  EXPECT_EQ(NodesAskedAtATime(limits::kPeerChannels), limits::kNodesAskedAtATime);
  EXPECT_EQ(PayloadConnectionsMax(), limits::kPeerPayloadConnectionsMax);
}

}  // namespace forebay::daemon::open_files_test
