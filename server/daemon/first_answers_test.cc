// Which nodes of a list of hosts are asked at the start, and until when.
#include "server/daemon/first_answers.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::daemon::first_answers_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Error kRefused(ErrorCode::kUnavailable, "connection refused");

class FirstAnswersTest : public ::testing::Test {
 protected:
  FirstAnswers Make(std::uint32_t nodes, std::size_t at_a_time) {
    std::vector<NodeRank> ranks;
    for (std::uint32_t rank = 0; rank < nodes; ++rank) ranks.emplace_back(rank);
    return FirstAnswers({.clock = clock_,
                         .nodes = std::move(ranks),
                         .at_a_time = at_a_time,
                         .ping = [this](NodeRank node, std::int64_t deadline_ns,
                                        FirstAnswersParts::Heard heard) {
                           asked_.push_back(node.value());
                           time_ns_ = deadline_ns - clock_.NowNs();
                           if (!refuses_) {
                             open_[node.value()] = std::move(heard);
                           } else {
                             heard(kRefused);
                           }
                         }});
  }
  std::vector<std::uint32_t> Ask(FirstAnswers& answers) {
    asked_.clear();
    missing_ = answers.Ask();
    return asked_;
  }
  void Hear(std::uint32_t node, const Result<peer::NodeReport>& heard) {
    open_.at(node)(heard);
    open_.erase(node);
  }

  io::ManualClock clock_;
  std::vector<std::uint32_t> asked_;
  std::vector<NodeRank> missing_;
  std::map<std::uint32_t, FirstAnswersParts::Heard> open_;
  std::int64_t time_ns_ = 0;
  bool refuses_ = false;
};

TEST_F(FirstAnswersTest, NodesAreAskedUntilTheyHaveAnsweredOnce) {
  FirstAnswers answers = Make(3, 256);
  EXPECT_THAT(Ask(answers), ElementsAre(0, 1, 2));
  EXPECT_EQ(time_ns_, 1'000'000'000);
  EXPECT_THAT(Ask(answers), IsEmpty()) << "they are being asked";
  EXPECT_EQ(missing_.size(), 3U);
  Hear(0, peer::NodeReport());
  EXPECT_EQ(answers.last_error(), "");
  Hear(1, kRefused);
  EXPECT_THAT(Ask(answers), ElementsAre(1));
  EXPECT_THAT(missing_, ElementsAre(NodeRank(1), NodeRank(2)));
  EXPECT_EQ(answers.last_error(), "connection refused");
  Hear(1, peer::NodeReport());
  Hear(2, peer::NodeReport());
  EXPECT_THAT(Ask(answers), IsEmpty());
  EXPECT_THAT(missing_, IsEmpty());
}

TEST_F(FirstAnswersTest, SoManyAreAskedAtATime) {
  FirstAnswers answers = Make(5, 2);
  EXPECT_THAT(Ask(answers), ElementsAre(0, 1));
  EXPECT_THAT(Ask(answers), IsEmpty());
  Hear(0, peer::NodeReport());
  EXPECT_THAT(Ask(answers), ElementsAre(2));
  EXPECT_EQ(missing_.size(), 4U);
}

TEST_F(FirstAnswersTest, NodesThatDoNotRunYetDoNotKeepOthersFromBeingAsked) {
  FirstAnswers answers = Make(5, 2);
  EXPECT_THAT(Ask(answers), ElementsAre(0, 1));
  Hear(0, kRefused);
  Hear(1, kRefused);
  EXPECT_THAT(Ask(answers), ElementsAre(2, 3));
  Hear(2, kRefused);
  Hear(3, kRefused);
  EXPECT_THAT(Ask(answers), ElementsAre(4, 0));
}

TEST_F(FirstAnswersTest, ANodeThatRefusesAtOnceIsAskedOnceEachTime) {
  refuses_ = true;
  FirstAnswers answers = Make(3, 1);
  EXPECT_THAT(Ask(answers), ElementsAre(0, 1, 2));
  EXPECT_EQ(missing_.size(), 3U);
}

TEST_F(FirstAnswersTest, AnAnswerMayComeAfterItIsGone) {
  { Ask(*std::make_unique<FirstAnswers>(Make(1, 1))); }
  Hear(0, peer::NodeReport());
}

}  // namespace forebay::daemon::first_answers_test
