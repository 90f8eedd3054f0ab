// The order of passes of each schedule, and rules that hold for every registered one.
#include "trainer/schedule/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace forebay::train {
namespace {

// "F0 F1 B0 ..."
std::string TextOf(std::string_view name, const StageShare& share) {
  std::string text;
  for (const StagePass& pass : FindPipelineSchedule(name).value()->order(share)) {
    if (!text.empty()) text += ' ';
    text += (pass.backward ? "B" : "F") + std::to_string(pass.index);
  }
  return text;
}

TEST(PipelineScheduleTest, GpipeRunsAllForwardFirst) {
  EXPECT_EQ(TextOf("gpipe", {.stage = 1, .stages = 2, .micro_batches = 3}), "F0 F1 F2 B0 B1 B2");
}

TEST(PipelineScheduleTest, AStageOf1f1bRunsAheadByTheStagesBehindIt) {
  EXPECT_EQ(TextOf("1f1b", {.stage = 0, .stages = 3, .micro_batches = 4}),
            "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(TextOf("1f1b", {.stage = 2, .stages = 3, .micro_batches = 3}), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(TextOf("1f1b", {.stage = 0, .stages = 4, .micro_batches = 2}), "F0 F1 B0 B1");
}

TEST(PipelineScheduleTest, EveryScheduleVisitsEachMicroBatchForwardThenBackward) {
  for (const PipelineSchedule& schedule : PipelineSchedules()) {
    for (const std::uint32_t stage : {0U, 1U, 2U}) {
      for (const std::uint32_t count : {1U, 2U, 7U}) {
        std::uint32_t forward = 0;
        std::uint32_t backward = 0;
        for (const StagePass& pass :
             schedule.order({.stage = stage, .stages = 3, .micro_batches = count})) {
          EXPECT_EQ(pass.index, pass.backward ? backward++ : forward++) << schedule.name;
          EXPECT_LE(backward, forward) << schedule.name;
        }
        EXPECT_EQ(forward, count) << schedule.name;
        EXPECT_EQ(backward, count) << schedule.name;
      }
    }
  }
}

TEST(PipelineScheduleTest, HoldsTheMicroBatchesBetweenForwardAndBackward) {
  const PipelineSchedule& gpipe = *FindPipelineSchedule("gpipe").value();
  const PipelineSchedule& alternating = *FindPipelineSchedule("1f1b").value();
  for (const std::uint32_t stage : {0U, 1U, 2U}) {
    const StageShare share{.stage = stage, .stages = 3, .micro_batches = 8};
    EXPECT_EQ(MicroBatchesHeld(gpipe, share), 8U);
    EXPECT_EQ(MicroBatchesHeld(alternating, share), 3 - stage);
  }
  EXPECT_EQ(MicroBatchesHeld(alternating, {.stage = 0, .stages = 3, .micro_batches = 2}), 2U);
}

TEST(PipelineScheduleTest, AreFoundByName) {
  EXPECT_EQ(FindPipelineSchedule("1f1b").value(), &PipelineSchedules().front());
  const auto unknown = FindPipelineSchedule("zero-bubble");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code(), ErrorCode::kInvalidArgument);
  for (const PipelineSchedule& schedule : PipelineSchedules()) {
    EXPECT_NE(unknown.error().message().find(schedule.name), std::string::npos);
  }
}

}  // namespace
}  // namespace forebay::train
