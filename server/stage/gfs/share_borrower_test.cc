// A node borrows from another one while its calls wait, keeps its share with the help of its
// witnesses, takes that of a lost node, and logs what it loses and takes.
#include "server/stage/gfs/share_borrower.h"

#include <deque>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::stage::share_borrower_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1'000 * kMs;

CapShareOptions CappedOpens(double opens, std::uint32_t nodes, std::uint32_t self) {
  return {.caps = {0, opens}, .node_count = nodes, .self = NodeRank(self)};
}

// Another node, in the same process.
class OtherNode final : public ShareSource {
 public:
  explicit OtherNode(GfsThrottle& throttle) : throttle_(throttle) {}
  void Borrow(NodeRank node, const ShareAsk& ask, std::int64_t, Answered answered) override {
    asked.push_back(node);
    if (answers) {
      answered(throttle_.Answer(NodeRank(0), ask));
    } else {
      answered(Error(ErrorCode::kUnavailable, "nobody is there"));
    }
  }
  std::vector<NodeRank> asked;
  bool answers = true;

 private:
  GfsThrottle& throttle_;
};

TEST(ShareBorrowerTest, ANodeWhoseCallsWaitBorrowsFromOneThatIsIdle) {
  io::ManualClock clock;
  GfsThrottle throttle(clock);
  GfsThrottle other(clock);
  throttle.Begin(CappedOpens(50, 2, 0));
  other.Begin(CappedOpens(50, 2, 1));
  plan::Membership nodes(NodeRank(0), {{.rank = NodeRank(0), .weight = 1, .identity = 1},
                                       {.rank = NodeRank(1), .weight = 1, .identity = 2}});
  OtherNode source(other);
  ShareBorrower borrower(throttle, source, nodes, clock);
  borrower.Tick();
  EXPECT_THAT(source.asked, IsEmpty());
  std::jthread waiter([&] {
    while (throttle.Take(Cap::kOpens, 1).has_value()) {
    }
  });
  const auto pass_a_second = [&] {
    for (int i = 0; i < 100; ++i) {
      clock.AdvanceNs(10 * kMs);
      while (throttle.WaitingThreads(0).empty()) std::this_thread::yield();
    }
    other.Tick([](NodeRank) { return true; });
    borrower.Tick();
  };
  for (int i = 0; i < 3; ++i) pass_a_second();
  EXPECT_THAT(source.asked, Not(IsEmpty()));
  EXPECT_GT(throttle.figures(Cap::kOpens).rate, 45);
  EXPECT_LT(other.figures(Cap::kOpens).rate, 5);
  // Nobody asks a node that counts as dead, and a silent one lends nothing.
  source.answers = false;
  pass_a_second();
  nodes.SetLives(NodeRank(1), false);
  const std::size_t before = source.asked.size();
  for (int i = 0; i < 3; ++i) pass_a_second();
  EXPECT_EQ(source.asked.size(), before);
  EXPECT_EQ(throttle.figures(Cap::kOpens).rate, 25);
  throttle.Stop();
}

// Nodes that lend one request each, and take almost as long as they may to say so.
class SlowLenders final : public ShareSource {
 public:
  static constexpr std::int64_t kAnswerNs = 900 * kMs;
  explicit SlowLenders(io::Clock& clock) : clock_(clock) {}
  void Borrow(NodeRank, const ShareAsk& ask, std::int64_t deadline_ns,
              Answered answered) override {
    if (ask.requests.wanted == 0) return;  // of a lease
    ++loans;
    EXPECT_GE(deadline_ns, clock_.NowNs() + kAnswerNs);
    asked_.push_back({clock_.NowNs(), std::move(answered)});
  }
  void AnswerWhatIsDue() {
    for (; !asked_.empty() && clock_.NowNs() - asked_.front().first >= kAnswerNs;
         asked_.pop_front()) {
      if (answers) asked_.front().second(ShareAnswer{.requests = 1});
    }
  }
  std::size_t loans = 0;  // that were asked for
  bool answers = true;

 private:
  io::Clock& clock_;
  std::deque<std::pair<std::int64_t, Answered>> asked_;
};

class ImpatientBorrowerTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kNodes = 40;
  ImpatientBorrowerTest() {
    throttle_.Begin({.requests = 2 * kNodes, .node_requests_max = 8, .node_count = kNodes});
    // Without a lease it has one of its two requests.
    EXPECT_TRUE(throttle_.TryBeginRequest(0));
  }
  static std::vector<plan::Node> Nodes() {
    std::vector<plan::Node> nodes;
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      nodes.push_back({.rank = NodeRank(i), .weight = 1, .identity = i + 1});
    }
    return nodes;
  }
  // As when the daemon is woken again and again.
  void PassWithManyTicks(std::int64_t ns) {
    for (std::int64_t passed = 0; passed < ns; passed += 5 * kMs) {
      borrower_.Tick();
      clock_.AdvanceNs(5 * kMs);
      lenders_.AnswerWhatIsDue();
    }
  }
  io::ManualClock clock_;
  GfsThrottle throttle_{clock_};
  plan::Membership nodes_{NodeRank(0), Nodes()};
  SlowLenders lenders_{clock_};
  ShareBorrower borrower_{throttle_, lenders_, nodes_, clock_};
};

TEST_F(ImpatientBorrowerTest, HoweverOftenItIsCalledItAsksOnceASecond) {
  EXPECT_FALSE(throttle_.TryBeginRequest(0));
  lenders_.answers = false;
  clock_.AdvanceNs(kSecond);
  for (std::size_t second = 1; second <= 2; ++second) {
    PassWithManyTicks(950 * kMs);
    EXPECT_EQ(lenders_.loans, second * RequestShare::kLoansMax);
  }
}

TEST_F(ImpatientBorrowerTest, HoweverOftenItIsCalledSlowAnswersCount) {
  EXPECT_FALSE(throttle_.TryBeginRequest(0));
  clock_.AdvanceNs(kSecond);
  // At first, and when the loans are renewed, of which none lapses.
  for (int second = 0; second < 5; ++second) {
    PassWithManyTicks(900 * kMs);
    EXPECT_EQ(throttle_.request_figures().borrowed, 7U);
    while (throttle_.TryBeginRequest(0)) {
    }
    PassWithManyTicks(50 * kMs);
  }
}

TEST_F(ImpatientBorrowerTest, HoweverOftenItIsCalledWhatANodeUsedCountsForSeconds) {
  throttle_.EndRequest();
  clock_.AdvanceNs(kSecond);
  PassWithManyTicks(950 * kMs);
  EXPECT_EQ(throttle_.request_figures().recent, 1U);
  const ShareAsk ask{.requests = {.wanted = 1}};
  EXPECT_EQ(throttle_.Answer(NodeRank(1), ask).requests, 0U) << "it may need all of them again";
}

// Two of three nodes, of which each grants what it is asked for, or does not answer.
class Witnesses final : public ShareSource {
 public:
  void Borrow(NodeRank node, const ShareAsk&, std::int64_t, Answered answered) override {
    if (silent.contains(node)) return answered(Error(ErrorCode::kUnavailable, "is silent"));
    answered(ShareAnswer{.is_leased = true});
  }
  std::set<NodeRank> silent;
};

class ShareOwnerTest : public testing::Test {
 protected:
  ShareOwnerTest() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
    throttle_.Begin(CappedOpens(60, 3, 1));
  }
  ~ShareOwnerTest() override { spdlog::set_default_logger(before_); }

  // What is logged in so many seconds.
  std::string Pass(int seconds) {
    text_.str("");
    for (int i = 0; i < seconds; ++i) {
      clock_.AdvanceNs(kSecond);
      borrower_.Tick();
    }
    spdlog::default_logger()->flush();
    return text_.str();
  }
  double rate() const { return throttle_.figures(Cap::kOpens).rate; }

  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream text_;
  io::ManualClock clock_;
  GfsThrottle throttle_{clock_};
  plan::Membership nodes_{NodeRank(1), {{.rank = NodeRank(0), .weight = 1, .identity = 1},
                                        {.rank = NodeRank(1), .weight = 1, .identity = 2},
                                        {.rank = NodeRank(2), .weight = 1, .identity = 3}}};
  Witnesses witnesses_;
  ShareBorrower borrower_{throttle_, witnesses_, nodes_, clock_};
};

TEST_F(ShareOwnerTest, ANodeWhoseWitnessesAreSilentSaysSo) {
  EXPECT_THAT(Pass(20), IsEmpty());
  EXPECT_EQ(rate(), 20);
  witnesses_.silent = {NodeRank(0), NodeRank(2)};
  EXPECT_THAT(Pass(7), IsEmpty());
  EXPECT_THAT(Pass(1), HasSubstr("no node has confirmed the share of this node for 8 s"));
  EXPECT_EQ(rate(), 5);
  EXPECT_THAT(Pass(20), IsEmpty()) << "it says so once";
  witnesses_.silent = {NodeRank(0)};
  EXPECT_THAT(Pass(1), HasSubstr("has its whole share again"));
  EXPECT_EQ(rate(), 20);
}

TEST_F(ShareOwnerTest, AnHeirSaysWhenItGetsAndLosesTheShareOfALostNode) {
  witnesses_.silent = {NodeRank(0)};
  nodes_.SetLives(NodeRank(0), false);
  EXPECT_THAT(Pass(7), IsEmpty()) << "the lease of the lost node may not have ended";
  EXPECT_THAT(Pass(2), HasSubstr("also uses the share of node 0"));
  EXPECT_EQ(rate(), 35);
  nodes_.SetLives(NodeRank(0), true);
  EXPECT_THAT(Pass(10), HasSubstr("no longer uses the share of node 0"));
  EXPECT_EQ(rate(), 20);
}

}  // namespace forebay::stage::share_borrower_test
