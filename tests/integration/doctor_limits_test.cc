// The number of open files that `forebayd --doctor` says a daemon with one client needs is enough
// for one, and not far too much.
#include <sys/resource.h>

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

// A figure of the doctor's JSON; 0 where there is none.
std::uint64_t Figure(const std::string& output, const std::string& name) {
  std::smatch match;
  return std::regex_search(output, match, std::regex("\"" + name + "\":(\\d+)"))
             ? std::stoull(match[1])
             : 0;
}

// Sets the limits of open files, which processes that are started inherit, while it exists.
class OpenFileLimits {
 public:
  OpenFileLimits(std::uint64_t soft, std::uint64_t hard) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit small = {.rlim_cur = soft, .rlim_max = hard};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  }
  // Only root may raise a hard limit again. For others it stays, and ctest runs each test in a
  // process of its own.
  ~OpenFileLimits() { static_cast<void>(setrlimit(RLIMIT_NOFILE, &before_)); }
  OpenFileLimits(const OpenFileLimits&) = delete;
  OpenFileLimits& operator=(const OpenFileLimits&) = delete;

 private:
  rlimit before_{};
};

TEST(DoctorLimitsTest, TheOpenFilesThatItAsksForAreEnoughForADaemonAndAClient) {
  const DaemonRig rig;
  const CommandEnd end = RunForebayd(
      {"--config", rig.folder() + "/f.toml", "--doctor", "--json"}, rig.folder());
  EXPECT_EQ(end.exit_code, 0) << end.output << end.errors;
  const std::uint64_t needed = Figure(end.output, "needed_by_one_client");
  ASSERT_GT(needed, 0U) << end.output;
  std::uint64_t used = 0;
  {
    const OpenFileLimits limits(needed, needed);
    const auto daemon = rig.Start();
    RawClient client(rig.socket_path());
    const v1::DatasetStatus staged = AwaitStaged(client);
    EXPECT_EQ(staged.state(), "staged") << staged.error();
    const EpochCounts counts = ReadEpoch(client);
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.distinct, 4096U);
    used = daemon->OpenFdCount();
  }
  EXPECT_LE(used, needed);
  EXPECT_GE(used, 20U) << "the daemon was not seen at work";
}

TEST(DoctorLimitsTest, FewerOpenFilesThanThatAreAFailure) {
  const DaemonRig rig;
  const OpenFileLimits limits(64, 64);
  const CommandEnd end =
      RunForebayd({"--config", rig.folder() + "/f.toml", "--doctor"}, rig.folder());
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.output, HasSubstr("failure  open_files  64 files may be open"));
  EXPECT_THAT(end.output, HasSubstr("remedy: have the hard limit of open files raised to "));
}

TEST(DoctorLimitsTest, TheDaemonRaisesItsSoftLimit) {
  const DaemonRig rig;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const OpenFileLimits limits(64, before.rlim_max);
  const CommandEnd end =
      RunForebayd({"--config", rig.folder() + "/f.toml", "--doctor"}, rig.folder());
  EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("open_files  " + std::to_string(before.rlim_max) + " files"));
}

}  // namespace
}  // namespace forebay::integration
