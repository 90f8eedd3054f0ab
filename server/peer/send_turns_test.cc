// Tests of SendTurns without a transport: which answers are sent when, and that a turn which was
// given up is not called.
#include "server/peer/send_turns.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::peer {
namespace {

using Numbers = std::vector<int>;

class SendTurnsTest : public testing::Test {
 protected:
  // The answer is there, and is noted in sent_ when it begins to be sent.
  void Await(const SendTurns::Turn& turn, int answer, std::uint64_t bytes = 50) {
    turns_.Await(turn, bytes, [this, answer] { sent_.push_back(answer); });
  }

  SendTurns turns_{100};
  Numbers sent_;
};

TEST_F(SendTurnsTest, AnswersAreSentInTheOrderOfTheRequests) {
  std::vector<SendTurns::Turn> turns;
  for (int i = 0; i < 5; ++i) turns.push_back(turns_.Take("a"));
  for (const std::size_t answer : {4U, 3U, 1U, 0U, 2U}) {
    Await(turns[answer], static_cast<int>(answer));
  }
  EXPECT_EQ(sent_, (Numbers{4, 3}));  // the first that were there, when nothing was under way
  turns_.End(turns[3]);
  EXPECT_EQ(sent_, (Numbers{4, 3, 0}));
  turns_.End(turns[4]);
  turns_.End(turns[0]);
  EXPECT_EQ(sent_, (Numbers{4, 3, 0, 1, 2}));
}

TEST_F(SendTurnsTest, AnswersBeginUntilSoManyBytesAreBeingSent) {
  std::vector<SendTurns::Turn> turns;
  for (int i = 0; i < 6; ++i) turns.push_back(turns_.Take("a"));
  Await(turns[0], 0, 99);
  Await(turns[1], 1, 1000);  // longer than all that may be sent at once
  Await(turns[2], 2, 0);
  for (const std::size_t i : {3U, 4U, 5U}) Await(turns[i], static_cast<int>(i), 40);
  EXPECT_EQ(sent_, (Numbers{0, 1}));
  turns_.End(turns[0]);
  EXPECT_EQ(sent_, (Numbers{0, 1}));
  turns_.End(turns[1]);
  EXPECT_EQ(sent_, (Numbers{0, 1, 2, 3, 4, 5}));
}

TEST_F(SendTurnsTest, TheNextAnswerBeginsWhenLittleOfALongOneIsLeft) {
  const SendTurns::Turn first = turns_.Take("a");
  const SendTurns::Turn second = turns_.Take("a");
  const SendTurns::Turn third = turns_.Take("a");
  Await(first, 1, 1000);
  Await(second, 2, 50);
  turns_.Sent(first, 900);
  EXPECT_EQ(sent_, (Numbers{1}));
  turns_.Sent(first, 60);
  EXPECT_EQ(sent_, (Numbers{1, 2}));
  turns_.Sent(second, 80);  // with what the message has besides the answer
  Await(third, 3, 50);
  EXPECT_EQ(sent_, (Numbers{1, 2, 3}));
  for (const SendTurns::Turn& turn : {first, second, third}) turns_.End(turn);
  turns_.Sent(first, 40);  // nothing of the connection is left
}

TEST_F(SendTurnsTest, AnAnswerThatIsNotThereHoldsUpNoOther) {
  const SendTurns::Turn first = turns_.Take("a");
  const SendTurns::Turn second = turns_.Take("a");
  Await(second, 2);
  EXPECT_EQ(sent_, (Numbers{2}));
  Await(first, 1);
  EXPECT_EQ(sent_, (Numbers{2, 1}));
}

TEST_F(SendTurnsTest, NodesDoNotWaitForEachOther) {
  for (int i = 0; i < 2; ++i) Await(turns_.Take("slow"), i);
  Await(turns_.Take("slow"), 2);
  Await(turns_.Take("other"), 3);
  EXPECT_EQ(sent_, (Numbers{0, 1, 3}));
}

TEST_F(SendTurnsTest, ATurnThatHasEndedIsNotSent) {
  const SendTurns::Turn early = turns_.Take("a");
  turns_.End(early);
  Await(early, 0);  // nothing of the connection is left
  const SendTurns::Turn first = turns_.Take("a");
  const SendTurns::Turn second = turns_.Take("a");
  const SendTurns::Turn third = turns_.Take("a");
  const SendTurns::Turn fourth = turns_.Take("a");
  Await(first, 1);
  Await(second, 2);
  Await(third, 3);
  turns_.End(third);  // while it waits
  turns_.End(fourth);
  Await(fourth, 4);   // others of the connection are left
  turns_.End(first);
  turns_.End(second);
  EXPECT_EQ(sent_, (Numbers{1, 2}));
}

// What an answer holds, such as pinned rows, must not stay until the other answers have ended.
TEST_F(SendTurnsTest, AnEndedTurnFreesWhatItsAnswerHolds) {
  const SendTurns::Turn first = turns_.Take("a");
  const SendTurns::Turn second = turns_.Take("a");
  const SendTurns::Turn third = turns_.Take("a");
  Await(first, 1);
  Await(second, 2);
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = held;
  turns_.Await(third, 50, [kept = std::move(held)] { FAIL() << "its turn has ended"; });
  EXPECT_FALSE(seen.expired());
  turns_.End(third);
  EXPECT_TRUE(seen.expired());
}

// The call and the carrier hold a turn. It must not be ended twice: the second time its entry would
// be gone.
TEST(HeldTurnTest, EndsWithTheLastHoldAndIsNotHeldAgain) {
  const auto turns = std::make_shared<SendTurns>(1);
  int sent = 0;
  HeldTurn first(turns, turns->Take("a"));
  HeldTurn second(turns, turns->Take("a"));
  first.Await(50, [&sent] { ++sent; });
  second.Await(50, [&sent] { ++sent; });
  EXPECT_EQ(sent, 1);
  ASSERT_TRUE(first.TryHold());
  first.Release();  // the call has ended
  EXPECT_EQ(sent, 1) << "the carrier still sends";
  first.Release();
  EXPECT_EQ(sent, 2);
  EXPECT_FALSE(first.TryHold()) << "the turn has ended";
  second.Release();
  // A turn that began when its call had been cancelled: the carrier is not to hold it any more.
  HeldTurn cancelled(turns, turns->Take("a"));
  cancelled.Release();
  EXPECT_FALSE(cancelled.TryHold());
}

}  // namespace
}  // namespace forebay::peer
