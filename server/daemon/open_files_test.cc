// Tests how many connections a daemon may have, with few files that it may open and with many, and
// what it logs of its limit.
#include "server/daemon/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::daemon::open_files_test {

using ::testing::AllOf;
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

class OpenFilesLogTest : public ::testing::Test {
 protected:
  OpenFilesLogTest() {
    config_.workers = 2;  // not by the number of processors
    needed_ = DescriptorsNeeded(config_, /*clients=*/1) + 4 * kNodes;
  }
  std::string LogWithFiles(rlim_t files) const {
    const FilesLimit limit(files);
    ::testing::internal::CaptureStdout();
    WarnOfFewOpenFiles(config_, kNodes);
    return ::testing::internal::GetCapturedStdout();
  }

  // Two files for each node over gRPC, and two for bytes of samples.
  static constexpr std::uint32_t kNodes = 100;
  Config config_ = DefaultConfig();
  rlim_t needed_ = 0;
};

TEST_F(OpenFilesLogTest, EnoughFilesForAllNodesAreNotLogged) {
  EXPECT_EQ(LogWithFiles(needed_), "");
}

TEST_F(OpenFilesLogTest, TooFewFilesForTheNodesOfAJobAreOneWarningWithItsRemedy) {
  const std::string log = LogWithFiles(needed_ - 1);
  EXPECT_THAT(log, AllOf(HasSubstr(std::to_string(needed_ - 1) + " files may be open"),
                         HasSubstr("a daemon of a job of 100 nodes needs up to " +
                                   std::to_string(needed_)),
                         HasSubstr("remedy: "), HasSubstr("ulimit -n"), HasSubstr("LimitNOFILE")));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
}

}  // namespace forebay::daemon::open_files_test
