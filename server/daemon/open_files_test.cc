// Tests how many connections a daemon may have, with few files that it may open and with many.
#include "server/daemon/open_files.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::daemon::open_files_test {

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
