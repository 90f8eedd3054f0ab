// What is reported when a run continues with another configuration, also by other versions of the
// program and with hostile texts.
#include "trainer/core/config/config_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/core/config/train_config.h"

namespace forebay::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ConfigChangesTest, WhatDiffersIsNamedWithBothValues) {
  TrainConfig then;
  TrainConfig now;
  EXPECT_THAT(ConfigChanges(ToToml(then), ToToml(now)), IsEmpty());
  now.train.learning_rate = 0.01;
  now.train.schedule = "constant";
  now.model.input_mean = {0.5, 0.25};
  now.checkpoint.keep_best = true;
  now.checkpoint.resume = "auto";
  now.checkpoint.new_run = true;
  EXPECT_THAT(ConfigChanges(ToToml(then), ToToml(now)),
              ElementsAre("checkpoint.keep_best: false -> true",
                          "model.input_mean: [0.286] -> [0.5, 0.25]",
                          "train.learning_rate: 0.05 -> 0.01",
                          "train.schedule: \"cosine\" -> \"constant\""));
}

TEST(ConfigChangesTest, KeysOfOtherVersionsOfTheProgram) {
  const std::string now = "[train]\nnew = 1\nseed = 2\n";
  EXPECT_THAT(ConfigChanges("[train]\n# was = here\nseed = 2\ngone = \"x\"\n", now),
              ElementsAre("train.gone: \"x\" -> no such key"));
}

TEST(ConfigChangesTest, AnyTextIsTakenAndShownAsText) {
  EXPECT_THAT(ConfigChanges("", "[a]\nb = 1\n"), IsEmpty());
  EXPECT_THAT(ConfigChanges("[a]\nb = \x1b[2J\nno line\n[\n]\n = \n", "[a]\nb = 1\n"),
              ElementsAre("a.:  -> no such key", "a.b: ?[2J -> 1"));
}

}  // namespace
}  // namespace forebay::train
