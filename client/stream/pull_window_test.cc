// Which request a reply belongs to.
#include "client/stream/pull_window.h"

#include <gtest/gtest.h>

namespace forebay::internal {
namespace {

TEST(PullWindow, AReplyBelongsToARequestThatWasSent) {
  PullWindow window({.steps_per_epoch = 4, .begin = {}, .end = {EpochId(1), StepId(0)}});
  const BatchName first = {};
  PulledBatch* const named = window.AskNamed(first);
  named->sent = true;
  PulledBatch* const queued = window.AskNext();
  ASSERT_TRUE(SameName(queued->name, first));
  EXPECT_EQ(window.FindAsked(first), named) << "the other one has not been asked for yet";
  queued->sent = true;
  EXPECT_NE(window.FindAsked(first), nullptr);
  named->phase = PulledBatch::Phase::kReady;
  EXPECT_EQ(window.FindAsked(first), queued);
  queued->phase = PulledBatch::Phase::kFailed;
  EXPECT_EQ(window.FindAsked(first), nullptr);
}

TEST(PullWindow, TheOrderEndsAndTakesBackItsLastStep) {
  PullWindow window({.steps_per_epoch = 1, .begin = {}, .end = {EpochId(2), StepId(0)}});
  ASSERT_NE(window.AskNext(), nullptr);
  ASSERT_NE(window.AskNext(), nullptr);
  EXPECT_TRUE(window.at_end());
  EXPECT_EQ(window.AskNext(), nullptr);
  const PulledBatch last = window.TakeBack();
  EXPECT_EQ(last.name.epoch, EpochId(1));
  EXPECT_FALSE(window.at_end());
  EXPECT_EQ(window.AskNext()->name.epoch, EpochId(1)) << "it is named again";
  EXPECT_EQ(window.queue().size(), 2U);
}

}  // namespace
}  // namespace forebay::internal
