// How long `forebay status --nodes` waits for the nodes, and which of them it asks.
#include "server/daemon/status_pings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/manual_clock.h"

namespace forebay::daemon::status_pings_test {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kMsNs = 1'000'000;
constexpr std::int64_t kNodeNs = limits::kNodesStatusMs * kMsNs;

class StatusPingsTest : public ::testing::Test {
 protected:
  // A node takes `answer_ns`, and the nodes that are asked at the same time do, too.
  std::vector<StatusPing> Ask(std::uint32_t nodes, std::size_t at_a_time, std::int64_t answer_ns) {
    StatusPings pings{.clock = clock_, .nodes = {}, .at_a_time = at_a_time, .ping = nullptr};
    for (std::uint32_t rank = 0; rank < nodes; ++rank) pings.nodes.emplace_back(rank);
    std::vector<StatusPings::Heard> open;
    std::size_t left = nodes;
    pings.ping = [&](NodeRank, std::int64_t deadline_ns, StatusPings::Heard heard) {
      times_ns_.push_back(deadline_ns - clock_.NowNs());
      open.push_back(std::move(heard));
      most_ = std::max(most_, open.size());
      if (open.size() < std::min(at_a_time, left)) return;
      clock_.AdvanceNs(answer_ns);
      left -= open.size();
      for (const StatusPings::Heard& each : std::exchange(open, {})) {
        each(answer_ns < kNodeNs ? Result<peer::NodeReport>({.samples = 7})
                                 : Error(ErrorCode::kDeadlineExceeded, "no answer"));
      }
    };
    return PingForStatus(pings);
  }

  io::ManualClock clock_;
  std::vector<std::int64_t> times_ns_;  // that each node had
  std::size_t most_ = 0;                // asked at a time
};

TEST_F(StatusPingsTest, FewNodesAreAskedAtOnce) {
  const std::vector<StatusPing> pings = Ask(7, 256, 3 * kMsNs);
  ASSERT_EQ(pings.size(), 7U);
  for (const StatusPing& ping : pings) {
    ASSERT_TRUE(ping.report.has_value());
    EXPECT_EQ(ping.report->samples, 7U);
    EXPECT_FALSE(ping.is_unasked);
    EXPECT_EQ(ping.answer_ns, 3 * kMsNs);
  }
  EXPECT_EQ(most_, 7U);
}

// 64 slices of 256 nodes that take a second each: 64 s.
TEST_F(StatusPingsTest, EachNodeOfALargeJobHasItsWholeTime) {
  const std::vector<StatusPing> pings = Ask(16'384, 256, 1'000 * kMsNs);
  EXPECT_EQ(most_, 256U);
  ASSERT_EQ(pings.size(), 16'384U);
  for (const StatusPing& ping : pings) {
    ASSERT_TRUE(ping.report.has_value()) << ping.report.error().message();
    ASSERT_EQ(ping.answer_ns, 1'000 * kMsNs);
  }
  EXPECT_THAT(times_ns_, Each(kNodeNs));
}

// Whoever asks for the status is not kept waiting for longer than the time for all nodes.
TEST_F(StatusPingsTest, NodesForWhichNoTimeIsLeftAreNotSaidToBeSilent) {
  const std::int64_t began_ns = clock_.NowNs();
  const std::vector<StatusPing> pings = Ask(1'000, 100, kNodeNs);
  const std::int64_t most_ns =
      (limits::kNodesStatusMs + 1'000 * limits::kNodesStatusMsPerNode) * kMsNs;
  EXPECT_LE(clock_.NowNs() - began_ns, most_ns + kNodeNs);
  EXPECT_EQ(times_ns_.size(), 400U);
  for (std::size_t i = 0; i < pings.size(); ++i) {
    ASSERT_FALSE(pings[i].report.has_value());
    ASSERT_EQ(pings[i].is_unasked, i >= 400) << i;
  }
  EXPECT_THAT(pings.back().report.error().message(), HasSubstr("took longer than 7 s"));
  EXPECT_LT(times_ns_.back(), kNodeNs) << "the last ones have what is left";
}

TEST_F(StatusPingsTest, WithoutOtherNodesNobodyIsAsked) {
  EXPECT_TRUE(Ask(0, 256, kMsNs).empty());
}

}  // namespace forebay::daemon::status_pings_test
