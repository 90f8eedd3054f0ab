// Daemons of a job whose wall clocks are wrong, or jump while the job runs. Daemons measure times
// by the monotonic clock. The wall clock is for certificates, whose time must be valid, and for the
// log. wrong_clock_preload.cc gives a daemon the wrong clock.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The variables of the environment are those of daemons that start as long as it exists.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables)
      : variables_(variables) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const std::map<std::string, std::string> variables_;
};

class NodesClockTest : public NodesTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer must be loaded before all other libraries";
#endif
  }
  std::unique_ptr<DaemonProcess> StartNode(std::uint32_t rank,
                                           const std::vector<std::string>& more) override {
    const std::string secret = rig_.folder() + "/secret";
    if (!std::filesystem::exists(secret)) {
      std::ofstream(secret) << std::string(32, 's');
      std::filesystem::permissions(secret, std::filesystem::perms::owner_read |
                                               std::filesystem::perms::owner_write);
    }
    // Clocks jump by hours, so such a jump would still be noticed. A daemon that stands still on a
    // busy machine for less than 30 s is not.
    std::vector<std::string> options = {"--set", "peer.secret=file:" + secret,
                                        "--set", "nodes.suspicion_s=60",
                                        "--set", "nodes.late_ms=0"};
    options.insert(options.end(), more.begin(), more.end());
    if (!std::filesystem::exists(ClockPath(rank))) return rig_.StartNode(rank, kNodes, options);
    const Environment wrong_clock(
        {{"LD_PRELOAD", FOREBAY_WRONG_CLOCK}, {"FOREBAY_TEST_CLOCK", ClockPath(rank)}});
    return rig_.StartNode(rank, kNodes, options);
  }
  // The node can talk to nobody, and each side goes on without the other.
  void ExpectThatItGoesOnAlone(std::uint32_t alone, std::uint32_t says_why) {
    ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
    EXPECT_TRUE(Eventually([this, says_why] {
      return ReadText(rig_.node_log(says_why)).find("clocks must differ by less than a day") !=
             std::string::npos;
    })) << ReadText(rig_.node_log(says_why));
    for (const std::uint32_t rank : {1U, 2U, 3U}) {
      EXPECT_EQ(NodesSeenBy(0)[rank].answers(), rank != alone) << rank;
    }
  }
  // The wall clock of the node differs from the real one by that from now on. If its daemon is to
  // have such a clock, call this before it starts.
  void SetClock(std::uint32_t rank, std::int64_t hours) {
    const std::int64_t seconds = hours * 3'600;
    // In place, because the daemon has mapped the file.
    std::fstream file(ClockPath(rank), std::ios::in | std::ios::out | std::ios::binary);
    if (!file.is_open()) file.open(ClockPath(rank), std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof(seconds));
    ASSERT_TRUE(file.good());
  }
  std::string ClockPath(std::uint32_t rank) const {
    return rig_.folder() + "/clock" + std::to_string(rank);
  }
  // The hour at which the last line of its log was written, such as "2026-11-29T21".
  std::string LastHour(std::uint32_t rank) const {
    const std::string log = ReadText(rig_.node_log(rank));
    const std::size_t end_of_last = log.rfind('\n', log.size() - 2);
    return log.substr(end_of_last == std::string::npos ? 0 : end_of_last + 1, 13);
  }
};

TEST_F(NodesClockTest, EpochsGoOnWhileClocksJump) {
  for (const std::uint32_t rank : {1U, 2U}) SetClock(rank, 0);
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  const auto jump = [this](std::uint64_t batches) {
    if (batches != steps_ / 4) return;
    SetClock(1, 40 * 24);
    SetClock(2, -20);
  };
  ExpectExact(ReadTogether({0, 1, 2, 3}, {.epoch = 1, .after_batch = jump}));
  // The daemons do see these clocks: the lines of their logs have that time.
  for (const std::uint32_t rank : {1U, 2U}) {
    EXPECT_TRUE(Eventually([&] {
      static_cast<void>(ReadTogether({0, 1, 2, 3}, {.epoch = 2, .end_step = 1}));  // logs lines
      return LastHour(rank) != LastHour(0);
    })) << rank;
  }
  ExpectExact(ReadTogether({0, 1, 2, 3}, 2));
  EXPECT_EQ(GfsBytesOfAll(), rig_.dataset_bytes());
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) {
    EXPECT_THAT(ReadText(rig_.node_log(rank)), Not(HasSubstr("counts as dead")));
  }
  // New connections between clocks that differ by weeks.
  daemons_[3]->Kill();
  daemons_[3] = StartNode(3, {});
  ASSERT_FALSE(daemons_[3]->ready_line().empty()) << ReadText(rig_.node_log(3));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 3));
  EXPECT_TRUE(Eventually([this] {
    return std::ranges::all_of(NodesSeenBy(3), &v1::NodeStatus::answers);
  })) << ReadText(rig_.node_log(3));
}

// A certificate is valid from a day before the start of the daemon that has made it. A daemon whose
// clock is further behind refuses it.
TEST_F(NodesClockTest, ANodeWhoseClockIsDaysBehindGoesOnByItselfAndSaysWhy) {
  SetClock(2, -3 * 24);
  StartAll();
  ExpectThatItGoesOnAlone(2, 2);
}

// The others refuse the certificate of a daemon whose clock is days ahead: its time has not begun.
TEST_F(NodesClockTest, ANodeWhoseClockIsDaysAheadGoesOnByItselfAndTheOthersSayWhy) {
  SetClock(2, 3 * 24);
  StartAll();
  ExpectThatItGoesOnAlone(2, 0);
}

TEST_F(NodesClockTest, ClocksThatDifferByHoursFromTheStartCostNothing) {
  SetClock(1, 20);
  SetClock(2, -3);
  StartAll();
  for (const std::uint32_t epoch : {0U, 1U}) ExpectExact(ReadTogether({0, 1, 2, 3}, epoch));
  EXPECT_EQ(GfsBytesOfAll(), rig_.dataset_bytes());
  for (const std::uint32_t rank : {1U, 2U}) EXPECT_NE(LastHour(rank), LastHour(0)) << rank;
}

}  // namespace
}  // namespace forebay::integration
