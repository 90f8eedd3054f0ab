// When a request counts as late, what becomes of the node then, and what a node that sends wrong
// bytes is done with. Links are made up here; peer_link_test.cc has the real one.
#include "server/peer/link_watch.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/manual_clock.h"
#include "server/peer/answer_times.h"

namespace forebay::peer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kOneMs = 1'000'000;
constexpr std::int64_t kLateAfterMs = 2'000;

// A link with at most one request under way.
class MadeUpLink final : public WatchedLink {
 public:
  LinkState AddSilence(std::int64_t elapsed_ns,
                       const std::function<bool()>& is_suspected) override {
    if (is_asked_ && (!waits_ || is_suspected())) silent_ns_ += elapsed_ns;
    if (is_asked_) busy_ns_ += kLookNs;
    received_bytes_ += bytes_each_look;
    return {.silent_ns = silent_ns_,
            .has_excused = waits_,
            .usual_ns = usual_ms * kOneMs,
            .received_bytes = received_bytes_,
            .busy_ns = busy_ns_,
            .wrong = wrong};
  }
  void EndLate(std::int64_t after_ns, const std::string& why) override {
    ended.push_back(after_ns / kOneMs);
    last_why = why;
    if (ends_at_once) Answer();
  }
  void Ask(bool waits = false) {
    is_asked_ = true;
    waits_ = waits;
  }
  void Answer() {
    is_asked_ = false;
    silent_ns_ = 0;
  }

  static constexpr std::int64_t kLookNs = kLateAfterMs / 10 * kOneMs;
  std::int64_t usual_ms = 0;
  std::uint64_t bytes_each_look = 0;  // that come of other requests
  std::uint64_t wrong = 0;
  bool ends_at_once = true;         // when it is late
  std::vector<std::int64_t> ended;  // in milliseconds
  std::string last_why;

 private:
  bool is_asked_ = false;
  bool waits_ = false;
  std::int64_t silent_ns_ = 0;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t busy_ns_ = 0;
};

class LinkWatchTest : public ::testing::Test {
 protected:
  // Node 0 watches the others.
  explicit LinkWatchTest(std::uint32_t others = 3, std::int64_t late_ms = kLateAfterMs)
      : links_(others), membership_(NodeRank(0), NodesOf(others + 1)) {
    std::vector<WatchedNode> watched;
    for (std::uint32_t i = 0; i < others; ++i) {
      links_[i].usual_ms = 20;
      watched.push_back({.rank = NodeRank(i + 1), .link = &links_[i]});
    }
    watch_.emplace(
        LinkWatchParts{.nodes = membership_,
                       .clock = clock_,
                       .is_suspected = [this](NodeRank node) { return node == suspected_; },
                       .name = [](NodeRank node) { return std::to_string(node.value()); },
                       .late_ms = late_ms},
        watched);
  }
  static std::vector<plan::Node> NodesOf(std::uint32_t count) {
    std::vector<plan::Node> nodes;
    for (std::uint32_t i = 0; i < count; ++i) {
      nodes.push_back({.rank = NodeRank(i), .identity = i + 1});
    }
    return nodes;
  }
  MadeUpLink& link(std::uint32_t rank) { return links_[rank - 1]; }
  bool Uses(std::uint32_t rank) const { return membership_.Lives(NodeRank(rank)); }
  bool IsResting(std::uint32_t rank) const {
    return membership_.IsResting(NodeRank(rank), clock_.NowNs());
  }
  // So much time passes, in which Look is called as Run would.
  void Pass(std::int64_t ms) {
    for (std::int64_t i = 0; i < ms * kOneMs / watch_->period_ns(); ++i) {
      clock_.AdvanceNs(watch_->period_ns());
      watch_->Look();
    }
  }
  // The node answers probes again, which NodeProber finds when it does not rest any more.
  void EndRest(std::uint32_t rank) {
    while (IsResting(rank)) Pass(200);
    membership_.SetLives(NodeRank(rank), true);
  }

  io::ManualClock clock_;
  NodeRank suspected_{99};
  std::deque<MadeUpLink> links_;
  plan::Membership membership_;
  std::optional<LinkWatch> watch_;
};

TEST_F(LinkWatchTest, ARequestOfWhichNothingComesEnds) {
  link(2).Ask();
  Pass(kLateAfterMs);
  EXPECT_THAT(link(2).ended, IsEmpty());
  EXPECT_TRUE(Uses(2));
  Pass(400);
  EXPECT_THAT(link(2).ended, ElementsAre(kLateAfterMs));
  EXPECT_THAT(link(2).last_why, HasSubstr("nodes.late_ms"));
  EXPECT_FALSE(Uses(2));
  EXPECT_TRUE(Uses(1));
}

TEST_F(LinkWatchTest, FourTimesTheUsualTimeIsWaitedForIfThatIsLonger) {
  for (const std::uint32_t rank : {1U, 2U, 3U}) link(rank).usual_ms = 1'000;
  link(2).Ask();
  Pass(4'000);
  EXPECT_THAT(link(2).ended, IsEmpty());
  Pass(400);
  EXPECT_THAT(link(2).ended, ElementsAre(4'000));
}

// One slow node among three does not make the others look fast, nor its own answers usual.
TEST_F(LinkWatchTest, TheUsualTimeIsThatOfMostNodes) {
  link(2).usual_ms = 5'000;
  link(2).Ask();
  Pass(kLateAfterMs + 400);
  EXPECT_THAT(link(2).ended, ElementsAre(kLateAfterMs));
}

TEST_F(LinkWatchTest, BeforeEnoughAnswersHaveComeThirtySecondsAreLate) {
  for (const std::uint32_t rank : {1U, 2U, 3U}) link(rank).usual_ms = 0;
  link(2).Ask();
  Pass(30'000);
  EXPECT_THAT(link(2).ended, IsEmpty());
  Pass(400);
  EXPECT_THAT(link(2).ended, ElementsAre(30'000));
}

TEST_F(LinkWatchTest, ThirtySecondsAreLateHoweverLongAnswersUsuallyTake) {
  for (const std::uint32_t rank : {1U, 2U, 3U}) link(rank).usual_ms = 20'000;
  link(2).Ask();
  Pass(30'400);
  EXPECT_THAT(link(2).ended, ElementsAre(30'000));
}

TEST_F(LinkWatchTest, AnAnswerInTimeStartsTheTimeAgain) {
  for (int i = 0; i < 5; ++i) {
    link(2).Ask();
    Pass(kLateAfterMs - 400);
    link(2).Answer();
  }
  EXPECT_THAT(link(2).ended, IsEmpty());
}

TEST_F(LinkWatchTest, ANodeThatWaitsForTheGfsIsWaitedForUnlessItIsSuspected) {
  link(2).Ask(/*waits=*/true);
  Pass(10'000);
  EXPECT_THAT(link(2).ended, IsEmpty());
  suspected_ = NodeRank(2);
  Pass(kLateAfterMs + 400);
  EXPECT_THAT(link(2).ended, ElementsAre(kLateAfterMs));
}

TEST_F(LinkWatchTest, TwoOfThreeNodesMayBeLateIfTheThirdAnswers) {
  link(1).Ask();
  link(3).Ask();
  Pass(1'000);
  link(2).bytes_each_look = 1;
  Pass(200);
  link(2).bytes_each_look = 0;
  Pass(kLateAfterMs - 800);
  EXPECT_FALSE(Uses(1));
  EXPECT_TRUE(Uses(2));
  EXPECT_FALSE(Uses(3));
}

TEST_F(LinkWatchTest, IfNobodyAnswersThisNodeIsCutOffItself) {
  for (const std::uint32_t rank : {1U, 2U, 3U}) link(rank).Ask();
  Pass(20'000);
  for (const std::uint32_t rank : {1U, 2U, 3U}) {
    EXPECT_THAT(link(rank).ended, IsEmpty());
    EXPECT_TRUE(Uses(rank));
  }
}

// The requests were not sent at the same time, and one node was not asked.
TEST_F(LinkWatchTest, ThatIsSoAlsoIfTheyWereNotAskedTogether) {
  link(2).bytes_each_look = 1;
  Pass(200);
  link(2).bytes_each_look = 0;
  link(1).Ask();
  Pass(400);
  link(3).Ask();
  Pass(20'000);
  EXPECT_TRUE(Uses(1));
  EXPECT_TRUE(Uses(3));
}

// Its requests wait for those before them, and bytes come as fast as they usually do.
TEST_F(LinkWatchTest, ALinkThatKeepsUpIsNotLateHoweverMuchIsAskedOfIt) {
  for (const std::uint32_t rank : {1U, 2U, 3U}) {
    link(rank).Ask();
    link(rank).bytes_each_look = 4'000;
  }
  Pass(1'000);
  for (const std::uint32_t rank : {1U, 3U}) {
    link(rank).Answer();
    link(rank).bytes_each_look = 0;
  }
  Pass(20'000);
  EXPECT_THAT(link(2).ended, IsEmpty());
  link(2).bytes_each_look = 500;  // an eighth of what is usual
  Pass(kLateAfterMs + 400);
  EXPECT_THAT(link(2).ended, ElementsAre(kLateAfterMs));
}

// It is asked for something all the time, and no request of it is late.
TEST_F(LinkWatchTest, ANodeWithAnEighthOfTheUsualSpeedRests) {
  const auto look = [this](bool waits) {
    for (const std::uint32_t rank : {1U, 2U, 3U}) {
      link(rank).Answer();
      link(rank).Ask(rank == 2 && waits);
      link(rank).bytes_each_look = rank == 2 ? 500 : 4'000;
    }
    Pass(200);
  };
  for (int i = 0; i < 100; ++i) look(/*waits=*/true);
  EXPECT_TRUE(Uses(2)) << "it waits for the GFS";
  for (int i = 0; i < 10; ++i) look(/*waits=*/false);
  EXPECT_TRUE(Uses(2)) << "not for long enough";
  for (int i = 0; i < 10; ++i) look(/*waits=*/false);
  EXPECT_FALSE(Uses(2));
  EXPECT_THAT(link(2).last_why, HasSubstr("MB/s"));
  const std::int64_t began_ns = clock_.NowNs();
  EndRest(2);
  EXPECT_GE((clock_.NowNs() - began_ns) / kOneMs, 28'000);
  for (int i = 0; i < 4; ++i) look(/*waits=*/false);
  EXPECT_FALSE(Uses(2)) << "found sooner than at first";
  EXPECT_TRUE(Uses(1));
  EXPECT_TRUE(Uses(3));
  EXPECT_THAT(link(1).ended, IsEmpty());
}

// Tests in which other nodes have found the slow node before this one does. They request nothing
// from it any more, so this node alone gets all of its speed.
class LinkWatchOfSlowTest : public LinkWatchTest {
 protected:
  void PassWithSpeed(std::uint64_t bytes, std::int64_t ms) {
    for (; ms > 0; ms -= 200) {
      for (const std::uint32_t rank : {1U, 2U, 3U}) {
        link(rank).Answer();
        link(rank).Ask();
        link(rank).bytes_each_look = rank == 2 ? bytes : 4'000;
      }
      Pass(200);
    }
  }
};

// It is measured anew, and the old measurement does not keep it away.
TEST_F(LinkWatchOfSlowTest, AfterItsRestANodeThatIsFasterIsUsedAgain) {
  PassWithSpeed(400, kLateAfterMs + 400);
  ASSERT_FALSE(Uses(2));
  EXPECT_THAT(watch_->SlowNodes(), ElementsAre(NodeRank(2)));
  EndRest(2);
  const NodeRank slow[] = {NodeRank(2)};
  for (int i = 0; i < 10; ++i) {
    watch_->HearSlow(slow);
    PassWithSpeed(0, 200);  // its answers come in every second look
    PassWithSpeed(5'600, 200);  // 0.7 of the usual speed
  }
  EXPECT_TRUE(Uses(2));
}

TEST_F(LinkWatchOfSlowTest, OneThatSendsNothingAfterItsRestGetsTheWholeTime) {
  PassWithSpeed(400, kLateAfterMs + 400);
  ASSERT_FALSE(Uses(2));
  EndRest(2);
  PassWithSpeed(0, kLateAfterMs - 400);
  EXPECT_TRUE(Uses(2));
  PassWithSpeed(0, 800);
  EXPECT_FALSE(Uses(2));
}

// The other node has requests under way that become late.
TEST_F(LinkWatchOfSlowTest, ALateRequestDuringTheRestChangesNothing) {
  PassWithSpeed(400, kLateAfterMs + 400);
  ASSERT_THAT(watch_->SlowNodes(), ElementsAre(NodeRank(2)));
  link(2).Ask();
  link(2).bytes_each_look = 0;
  Pass(10'000);
  EXPECT_THAT(link(2).ended, ::testing::Contains(kLateAfterMs));
  EXPECT_THAT(watch_->SlowNodes(), ElementsAre(NodeRank(2)));
}

// One large request of which a little comes all the time is never late.
TEST_F(LinkWatchOfSlowTest, WhatASlowNodeSendsAlreadyMayComeForAWhile) {
  PassWithSpeed(400, kLateAfterMs + 400);
  ASSERT_FALSE(Uses(2));
  link(2).ended.clear();
  Pass(kLateAfterMs - 400);
  EXPECT_THAT(link(2).ended, IsEmpty());
  Pass(800);
  EXPECT_THAT(link(2).last_why, HasSubstr("slow"));
  EXPECT_THAT(link(2).ended, Not(IsEmpty()));
}

TEST_F(LinkWatchOfSlowTest, ANodeThatAnotherOneFoundSlowNeedsHalfTheUsualSpeed) {
  const auto hear = [this](std::vector<NodeRank> slow) {
    for (int i = 0; i < 5; ++i) {
      watch_->HearSlow(slow);
      PassWithSpeed(1'800, 200);
    }
  };
  PassWithSpeed(1'800, 4'000);
  hear({NodeRank(0), NodeRank(99)});  // this node, and one that there is not
  EXPECT_TRUE(Uses(2));
  EXPECT_THAT(watch_->SlowNodes(), IsEmpty());
  hear({NodeRank(2), NodeRank(3)});
  EXPECT_FALSE(Uses(2));
  EXPECT_TRUE(Uses(3)) << "it has the usual speed";
  EXPECT_THAT(watch_->SlowNodes(), IsEmpty()) << "it has not found that by itself";
  EndRest(2);
  PassWithSpeed(1'800, 20'000);
  EXPECT_TRUE(Uses(2)) << "nobody says so any more";
}

TEST_F(LinkWatchOfSlowTest, OthersAreToldAsLongAsItRests) {
  PassWithSpeed(400, kLateAfterMs + 400);
  EXPECT_THAT(watch_->SlowNodes(), ElementsAre(NodeRank(2)));
  EndRest(2);
  Pass(200);
  EXPECT_THAT(watch_->SlowNodes(), IsEmpty());
}

TEST_F(LinkWatchOfSlowTest, WhatAnotherNodeHasSaidIsForgotten) {
  const NodeRank slow[] = {NodeRank(2)};
  watch_->HearSlow(slow);
  PassWithSpeed(4'000, 6'000);
  PassWithSpeed(1'800, 20'000);
  EXPECT_TRUE(Uses(2));
}

TEST_F(LinkWatchOfSlowTest, ANodeThatIsLateIsNotNamedAsSlow) {
  link(2).Ask();
  Pass(kLateAfterMs + 400);
  ASSERT_FALSE(Uses(2));
  EXPECT_THAT(watch_->SlowNodes(), IsEmpty());
}

TEST_F(LinkWatchOfSlowTest, ANodeThatWasLateNeedsAFifth) {
  link(2).Ask();
  Pass(kLateAfterMs + 400);
  ASSERT_FALSE(Uses(2));
  EndRest(2);
  PassWithSpeed(4'000, 400);
  PassWithSpeed(1'800, 10'000);
  EXPECT_TRUE(Uses(2));
}

TEST_F(LinkWatchTest, ASlowNodeThatIsNotAskedAllTheTimeHoldsNobodyUp) {
  for (int i = 0; i < 100; ++i) {
    for (const std::uint32_t rank : {1U, 2U, 3U}) {
      link(rank).Answer();
      if (i % 2 == 0) link(rank).Ask();
      link(rank).bytes_each_look = i % 2 == 1 ? 0 : rank == 2 ? 500 : 4'000;
    }
    Pass(200);
  }
  EXPECT_TRUE(Uses(2));
}

TEST_F(LinkWatchTest, ALateRequestThatTakesTimeToEndDoesNotMakeTheRestLonger) {
  link(2).ends_at_once = false;
  link(2).Ask();
  Pass(kLateAfterMs + 1'800);
  EXPECT_TRUE(IsResting(2));
  link(2).Answer();
  Pass(600);
  EXPECT_FALSE(IsResting(2));
}

TEST_F(LinkWatchTest, IfSeveralNodesSendWrongBytesOneIsLeftOut) {
  for (const std::uint32_t rank : {1U, 2U, 3U}) link(rank).wrong = limits::kPeerWrongMax;
  Pass(1'000);
  EXPECT_FALSE(Uses(1));
  EXPECT_TRUE(Uses(2));
  EXPECT_TRUE(Uses(3));
}

TEST_F(LinkWatchTest, AProcessThatStoodStillTakesNobodyForLate) {
  link(2).Ask();
  clock_.AdvanceNs(60'000 * kOneMs);
  watch_->Look();
  EXPECT_THAT(link(2).ended, IsEmpty());
}

TEST_F(LinkWatchTest, ANodeThatIsLateAgainSoonRestsForLonger) {
  std::vector<std::int64_t> rests_ms;
  for (int i = 0; i < 8; ++i) {
    link(2).Ask();
    Pass(kLateAfterMs + 200);
    ASSERT_FALSE(Uses(2));
    const std::int64_t began_ns = clock_.NowNs();
    EndRest(2);
    rests_ms.push_back((clock_.NowNs() - began_ns) / kOneMs);
  }
  EXPECT_THAT(rests_ms, ElementsAre(2'000, 4'000, 8'000, 16'000, 32'000, 64'000, 64'000, 64'000));
  // As long as the last rest it is not late.
  Pass(64'000);
  link(2).Ask();
  Pass(kLateAfterMs + 200);
  const std::int64_t began_ns = clock_.NowNs();
  EndRest(2);
  EXPECT_EQ((clock_.NowNs() - began_ns) / kOneMs, 2'000);
}

TEST_F(LinkWatchTest, ANodeThatSendsWrongBytesAgainAndAgainIsUsedNoMore) {
  link(2).wrong = limits::kPeerWrongMax - 1;
  Pass(1'000);
  EXPECT_TRUE(Uses(2));
  ++link(2).wrong;
  Pass(1'000);
  EXPECT_FALSE(Uses(2));
  Pass(1'000'000);
  EXPECT_TRUE(IsResting(2));
  // A request that is late does not shorten that.
  link(2).Ask();
  Pass(kLateAfterMs + 400);
  EXPECT_THAT(link(2).ended, ElementsAre(kLateAfterMs));
  Pass(100'000);
  EXPECT_TRUE(IsResting(2));
}

// Another machine has the rank now. The prober finds that it answers, as after a rest.
TEST_F(LinkWatchTest, WrongBytesOfTheMachineBeforeAreForgotten) {
  link(2).wrong = limits::kPeerWrongMax;
  Pass(1'000);
  ASSERT_TRUE(membership_.RestsForEver(NodeRank(2)));
  link(2).wrong = 0;  // PeerLink::Redirect
  watch_->Forget(NodeRank(2));
  EXPECT_TRUE(IsResting(2));
  Pass(200);
  EXPECT_FALSE(IsResting(2));
  EXPECT_FALSE(Uses(2)) << "nobody has found yet that it answers";
  membership_.SetLives(NodeRank(2), true);
  link(2).wrong = limits::kPeerWrongMax - 1;
  Pass(10'000);
  EXPECT_TRUE(Uses(2));
  // It is found like any other one, and no other one is left out now.
  ++link(2).wrong;
  Pass(200);
  EXPECT_TRUE(membership_.RestsForEver(NodeRank(2)));
}

TEST_F(LinkWatchTest, ARestOfTheMachineBeforeIsOverAndDoesNotCount) {
  const auto rest_ms = [this] {
    link(2).Ask();
    Pass(kLateAfterMs + 200);
    EXPECT_TRUE(IsResting(2));
    const std::int64_t began_ns = clock_.NowNs();
    EndRest(2);
    return (clock_.NowNs() - began_ns) / kOneMs;
  };
  ASSERT_EQ(rest_ms(), 2'000);
  ASSERT_EQ(rest_ms(), 4'000);
  link(2).Ask();
  Pass(kLateAfterMs + 200);
  ASSERT_TRUE(IsResting(2));
  watch_->Forget(NodeRank(2));
  Pass(200);
  EXPECT_FALSE(IsResting(2));
  membership_.SetLives(NodeRank(2), true);
  EXPECT_EQ(rest_ms(), 2'000) << "as for a node that was never late";
}

TEST_F(LinkWatchOfSlowTest, TheSpeedOfTheMachineBeforeIsForgotten) {
  PassWithSpeed(400, kLateAfterMs + 400);
  ASSERT_THAT(watch_->SlowNodes(), ElementsAre(NodeRank(2)));
  const NodeRank slow[] = {NodeRank(2)};
  watch_->HearSlow(slow);
  watch_->Forget(NodeRank(2));
  watch_->Forget(NodeRank(9));  // no node that is watched
  Pass(200);
  EXPECT_THAT(watch_->SlowNodes(), IsEmpty());
  EXPECT_FALSE(IsResting(2));
  membership_.SetLives(NodeRank(2), true);
  // Two fifths of the usual speed, which would be too little after the word of another node.
  PassWithSpeed(1'600, 2 * kLateAfterMs);
  EXPECT_TRUE(Uses(2));
}

class LinkWatchOfOneTest : public LinkWatchTest {
 protected:
  LinkWatchOfOneTest() : LinkWatchTest(/*others=*/1) {}
};

// The GFS is left in its place.
TEST_F(LinkWatchOfOneTest, TheOnlyOtherNodeMayBeLate) {
  link(1).Ask();
  Pass(kLateAfterMs + 400);
  EXPECT_FALSE(Uses(1));
}

class LinkWatchOffTest : public LinkWatchTest {
 protected:
  LinkWatchOffTest() : LinkWatchTest(/*others=*/3, /*late_ms=*/0) {}
};

TEST_F(LinkWatchOffTest, NothingIsLateWithinThirtySeconds) {
  link(2).Ask();
  Pass(30'000);
  EXPECT_THAT(link(2).ended, IsEmpty());
  Pass(2'000);
  EXPECT_THAT(link(2).ended, ElementsAre(30'000));
  EXPECT_THAT(link(2).last_why, Not(HasSubstr("nodes.late_ms")));
}

TEST(AnswerTimesTest, TheUsualTimeIsTheMeanAndFourDeviations) {
  AnswerTimes times;
  for (std::uint64_t i = 0; i + 1 < AnswerTimes::kAnswersMin; ++i) times.Add(800);
  EXPECT_EQ(times.usual_ns(), 0);
  for (int i = 0; i < 100; ++i) times.Add(800);
  EXPECT_GE(times.usual_ns(), 800);
  EXPECT_LT(times.usual_ns(), 820);  // the deviation of the start is forgotten
  const std::int64_t before_ns = times.usual_ns();
  times.Add(8'000);
  EXPECT_GT(times.usual_ns(), before_ns + 7'200);
}

}  // namespace
}  // namespace forebay::peer
