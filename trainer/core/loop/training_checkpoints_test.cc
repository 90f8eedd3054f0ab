// When the loop writes checkpoints, and what a resumed run makes of them: feeds in memory, a
// scripted engine.
#include "trainer/core/loop/training_loop.h"

#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "proto/contract/checksum.h"
#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"
#include "trainer/core/checkpoint/folder_lock.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/testing/run_fixture.h"
#include "trainer/testing/scripted_engine.h"
#include "trainer/testing/stored_checkpoint.h"

namespace forebay::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunFixture;
using testing::ScriptedEngine;

// Names in `folder`, sorted.
std::vector<std::string> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// Wherever a run stops, the resumed one makes the same losses and sees the same samples.
TEST(TrainingCheckpointsTest, ResumedRunHasTheLossCurveOfAnUninterruptedOne) {
  RunFixture whole;
  ScriptedEngine whole_engine;
  ASSERT_TRUE(whole.Run(whole_engine).has_value());
  for (const std::uint64_t stop : {1U, 7U, 10U, 11U, 20U, 29U}) {
    RunFixture run;
    run.stop_after_steps = stop;
    ScriptedEngine first_engine;
    const auto first = run.Run(first_engine);
    ASSERT_TRUE(first.has_value()) << first.error().ToString();
    EXPECT_FALSE(first->completed);
    EXPECT_EQ(first->steps, stop);
    run.stop_after_steps = UINT64_MAX;
    run.config.checkpoint.resume = "auto";
    ScriptedEngine second_engine;
    const auto second = run.Run(second_engine);
    ASSERT_TRUE(second.has_value()) << second.error().ToString();
    EXPECT_TRUE(second->completed);
    EXPECT_EQ(second->first_global_step, stop);
    EXPECT_EQ(run.LossCurve(), whole.LossCurve()) << stop;
    EXPECT_EQ(run.probe.trained, whole.probe.trained) << stop;
    // A stop right after an epoch leaves its evaluation to the next run: none is lost.
    EXPECT_EQ(first->evaluations.size() + second->evaluations.size(), 3U) << stop;
  }
}

TEST(TrainingCheckpointsTest, StopAfterTheVeryLastStepStillGetsItsEvaluation) {
  RunFixture run;
  run.stop_after_steps = 30;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  EXPECT_FALSE(stopped->completed);
  EXPECT_EQ(stopped->evaluations.size(), 2U);
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = UINT64_MAX;
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_TRUE(resumed->completed);
  EXPECT_EQ(resumed->steps, 0U);
  ASSERT_EQ(resumed->evaluations.size(), 1U);
  EXPECT_EQ(resumed->evaluations[0].epoch, 2U);
}

TEST(TrainingCheckpointsTest, AnEvaluationThatIsMadeUpIsSavedAndNotMadeAgain) {
  RunFixture run;
  run.stop_after_steps = 30;
  run.config.checkpoint.checkpoints_kept = 1;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = UINT64_MAX;
  const auto made_up = run.Run(engine);
  ASSERT_TRUE(made_up.has_value()) << made_up.error().ToString();
  ASSERT_EQ(made_up->evaluations.size(), 1U);
  EXPECT_THAT(made_up->checkpoint, HasSubstr("step-000000000030"));
  const auto again = run.Run(engine);
  ASSERT_TRUE(again.has_value()) << again.error().ToString();
  EXPECT_EQ(again->first_global_step, 30U);
  EXPECT_TRUE(again->evaluations.empty());
  EXPECT_EQ(NamesIn(run.config.checkpoint.checkpoint_dir),
            std::vector<std::string>{"step-000000000030"});
}

TEST(TrainingCheckpointsTest, WantOfMemoryCostsOneCheckpointUnlessItIsTheLast) {
  for (const std::uint64_t failing : {2U, 3U}) {
    RunFixture run;
    run.config.checkpoint.checkpoint_every_steps = 10;
    ScriptedEngine engine;
    engine.before_save = [&engine, failing] {
      if (++engine.faults >= failing && engine.faults < failing + failing - 1) {
        throw std::bad_alloc();
      }
    };
    const auto report = run.Run(engine);
    const std::string step = fmt::format("step-0000000000{}0", failing);
    EXPECT_THAT(run.printed, Contains(AllOf(HasSubstr("not written"), HasSubstr(step),
                                            HasSubstr("out of memory"))));
    ASSERT_EQ(report.has_value(), failing == 2);
    if (failing == 2) continue;
    // That of step 30 was tried again at the end.
    EXPECT_EQ(engine.faults, 4U);
    EXPECT_EQ(report.error().code(), ErrorCode::kResourceExhausted);
  }
}

TEST(TrainingCheckpointsTest, ExceptionsOfLoadingAndDigestsAreErrorsThatNameTheFile) {
  RunFixture run;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = UINT64_MAX;
  ScriptedEngine loading;
  loading.before_load = [] {
    throw std::filesystem::filesystem_error("read", "some-shard",
                                            std::make_error_code(std::errc::io_error));
  };
  const auto loaded = run.Run(loading);
  ASSERT_FALSE(loaded.has_value());
  EXPECT_THAT(loaded.error().message(),
              AllOf(HasSubstr("step-000000000012"), HasSubstr("some-shard")));
  ScriptedEngine digesting;
  digesting.before_digest = [] { throw std::runtime_error("no digest"); };
  const auto digested = run.Run(digesting);
  ASSERT_FALSE(digested.has_value());
  EXPECT_THAT(digested.error().message(), HasSubstr("weights digest: no digest"));
}

TEST(TrainingCheckpointsTest, WhatDiffersFromTheCheckpointIsSaidOnce) {
  RunFixture run;
  run.stop_after_steps = 5;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  run.printed.clear();
  run.config.checkpoint.resume = "auto";
  run.config.train.learning_rate = 0.125;
  run.config.train.schedule = "constant";
  ASSERT_TRUE(run.Run(engine).has_value());
  std::vector<std::string> changes;
  for (const std::string& line : run.printed) {
    if (line.starts_with("  train.")) changes.push_back(line);
  }
  EXPECT_THAT(changes, ::testing::ElementsAre("  train.learning_rate: 0.05 -> 0.125",
                                              "  train.schedule: \"cosine\" -> \"constant\""));
  EXPECT_THAT(run.printed, Not(Contains(HasSubstr("warning"))));
}

TEST(TrainingCheckpointsTest, AnotherLayoutUnderFastSumsIsWarnedOf) {
  RunFixture run;
  run.config.train.exactness = "fast";
  run.stop_after_steps = 5;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  const auto warnings = [&run] {
    return std::ranges::count_if(run.printed, [](const std::string& line) {
      return line.find("weights will depend on the layout") != std::string::npos;
    });
  };
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = 1;
  ASSERT_TRUE(run.Run(engine).has_value());
  EXPECT_EQ(warnings(), 0);
  testing::Rewrite(std::filesystem::path(run.config.checkpoint.checkpoint_dir) /
                       "step-000000000006",
                   [](Checkpoint& state) { state.layout = "2 x 1"; });
  ASSERT_TRUE(run.Run(engine).has_value());
  EXPECT_EQ(warnings(), 1);
}

TEST(TrainingCheckpointsTest, OneIsMadeEveryTenMinutesWithoutBeingAskedFor) {
  RunFixture run;
  constexpr std::uint64_t kMinuteNs = 60'000'000'000;
  run.on_step = [&](std::uint64_t steps) {
    if (steps == 4) run.clock_ns += 9 * kMinuteNs;
    if (steps == 6) run.clock_ns += 2 * kMinuteNs;
  };
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  EXPECT_EQ(NamesIn(run.config.checkpoint.checkpoint_dir),
            (std::vector<std::string>{"step-000000000007", "step-000000000030"}));
}

TEST(TrainingCheckpointsTest, CrashResumesFromTheLastPeriodicCheckpoint) {
  RunFixture whole;
  ScriptedEngine whole_engine;
  ASSERT_TRUE(whole.Run(whole_engine).has_value());
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 4;
  run.probe.fail_at_global_step = 14;
  ScriptedEngine engine;
  const auto crashed = run.Run(engine);
  ASSERT_FALSE(crashed.has_value());
  EXPECT_EQ(crashed.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(run.probe.faults, 1U);
  run.probe.fail_at_global_step.reset();
  run.config.checkpoint.resume = "auto";
  ScriptedEngine again;
  const auto resumed = run.Run(again);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  // That of step 12 was under way, and is written before the run ends.
  EXPECT_EQ(resumed->first_global_step, 12U);
  EXPECT_EQ(run.LossCurve(), whole.LossCurve());
}

TEST(TrainingCheckpointsTest, OneThatIsUnderWayIsWrittenBeforeALossEndsTheRun) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 5;
  ScriptedEngine engine;
  engine.infinite_loss_at_step = 5;  // the step behind
  ASSERT_FALSE(run.Run(engine).has_value());
  EXPECT_EQ(engine.faults, 1U);
  EXPECT_EQ(NamesIn(run.config.checkpoint.checkpoint_dir),
            std::vector<std::string>{"step-000000000005"});
  EXPECT_THAT(run.printed, Contains(HasSubstr("last checkpoint: ")));
}

TEST(TrainingCheckpointsTest, AutoWithoutACheckpointStartsAfresh) {
  RunFixture run;
  run.config.checkpoint.resume = "auto";
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_EQ(report->steps, 30U);
  EXPECT_THAT(run.printed, Contains(HasSubstr("starting afresh")));
}

TEST(TrainingCheckpointsTest, AutoPassesOverATornCheckpoint) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 5;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  std::filesystem::resize_file(std::filesystem::path(stopped->checkpoint) / ShardName(0), 60);
  run.stop_after_steps = UINT64_MAX;
  run.config.checkpoint.resume = "auto";
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->first_global_step, 10U);
  EXPECT_THAT(run.printed, Contains(HasSubstr("passed over")));
}

TEST(TrainingCheckpointsTest, AFreshRunWhereAnotherHasCheckpointsIsRefusedAndChangesNothing) {
  RunFixture run;
  run.config.checkpoint.checkpoints_kept = 1;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  run.config.train.epochs = 1;
  const auto refused = run.Run(engine);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kAlreadyExists);
  for (const char* part : {"checkpoints", "step-000000000030", "0123456789abcdef",
                           "--resume auto", "--new-run", "aside-0123456789abcdef-1"}) {
    EXPECT_THAT(refused.error().message(), HasSubstr(part));
  }
  EXPECT_EQ(NamesIn(run.config.checkpoint.checkpoint_dir),
            std::vector<std::string>{"step-000000000030"});
}

TEST(TrainingCheckpointsTest, ANewRunMovesAnothersCheckpointsAsideAndAutoFindsItsOwn) {
  RunFixture run;
  run.config.checkpoint.checkpoints_kept = 1;
  run.config.checkpoint.keep_best = true;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  run.config.train.epochs = 1;
  run.config.checkpoint.new_run = true;
  run.run_number = 0xFFEE;
  const auto other = run.Run(engine);
  ASSERT_TRUE(other.has_value()) << other.error().ToString();
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  EXPECT_EQ(NamesIn(folder), (std::vector<std::string>{"aside-0123456789abcdef-1", "best",
                                                       "step-000000000010"}));
  EXPECT_TRUE(std::filesystem::exists(other->checkpoint));
  EXPECT_TRUE(VerifyCheckpoint(folder / "aside-0123456789abcdef-1/step-000000000030").has_value());
  EXPECT_TRUE(
      VerifyCheckpoint(folder / "aside-0123456789abcdef-1/best/step-000000000010").has_value());
  EXPECT_EQ(ReadManifest(folder / "best/step-000000000010")->state.run, "000000000000ffee");
  EXPECT_THAT(run.printed, Contains(HasSubstr("moved aside to")));
  run.config.checkpoint.new_run = false;
  run.config.checkpoint.resume = "auto";
  run.config.train.epochs = 2;
  run.run_number = 1;
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->first_global_step, 10U);
  const auto manifest = ReadManifest(resumed->checkpoint);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_EQ(manifest->state.run, "000000000000ffee");
  EXPECT_EQ(manifest->state.resumed_from,
            (CheckpointOrigin{.run = "000000000000ffee", .step = 10}));
}

TEST(TrainingCheckpointsTest, ResumingFromAnEarlierOneMovesTheLaterAsideAndAutoGoesOnFromThere) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 10;
  run.config.checkpoint.checkpoints_kept = 2;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  ASSERT_EQ(NamesIn(folder),
            (std::vector<std::string>{"step-000000000020", "step-000000000030"}));
  run.config.checkpoint.resume = folder / "step-000000000020";
  run.config.train.learning_rate = 0.01;
  run.stop_after_steps = 3;
  const auto earlier = run.Run(engine);
  ASSERT_TRUE(earlier.has_value()) << earlier.error().ToString();
  EXPECT_EQ(NamesIn(folder), (std::vector<std::string>{"aside-0123456789abcdef-1",
                                                       "step-000000000020", "step-000000000023"}));
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = 1;
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->first_global_step, 23U);
  EXPECT_EQ(NamesIn(folder), (std::vector<std::string>{"aside-0123456789abcdef-1",
                                                       "step-000000000023", "step-000000000024"}));
}

TEST(TrainingCheckpointsTest, ABestOneThatWentAsideIsMissedAloud) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 10;
  run.config.checkpoint.keep_best = true;
  run.config.evaluation.evaluate_every_epochs = 1;
  ScriptedEngine engine;
  engine.judged_by = {.name = "mae", .higher_is_better = false};
  engine.scores_state = true;
  ASSERT_TRUE(run.Run(engine).has_value());
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  // As if that of step 30 had been better and had taken the place of the one before.
  const std::vector<std::string> best = NamesIn(folder / "best");
  ASSERT_EQ(best.size(), 1U);
  std::filesystem::rename(folder / "best" / best[0], folder / "best/step-000000000030");
  run.config.checkpoint.resume = folder / "step-000000000020";
  run.stop_after_steps = 1;
  ASSERT_TRUE(run.Run(engine).has_value());
  EXPECT_THAT(run.printed, Contains(AllOf(HasSubstr("note: "), HasSubstr("best is empty"),
                                          HasSubstr("mae"))));
}

TEST(TrainingCheckpointsTest, ARunThatIsRefusedForAnotherReasonMovesNothingAside) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 10;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  run.config.checkpoint.resume = folder / "step-000000000010";
  run.config.train.seed = 99;
  EXPECT_FALSE(run.Run(engine).has_value());
  EXPECT_EQ(NamesIn(folder), (std::vector<std::string>{"step-000000000010", "step-000000000020",
                                                       "step-000000000030"}));
}

TEST(TrainingCheckpointsTest, ACheckpointOfAnotherFolderBeginsARunOfItsOwn) {
  RunFixture run;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  run.config.checkpoint.resume = stopped->checkpoint;
  run.config.checkpoint.checkpoint_dir = run.folder.path() / "elsewhere";
  run.run_number = 0xA;
  const auto forked = run.Run(engine);
  ASSERT_TRUE(forked.has_value()) << forked.error().ToString();
  const auto manifest = ReadManifest(forked->checkpoint);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_EQ(manifest->state.run, "000000000000000a");
  EXPECT_EQ(manifest->state.resumed_from,
            (CheckpointOrigin{.run = "0123456789abcdef", .step = 12}));
  // Once more would mix two of them.
  const auto again = run.Run(engine);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), ErrorCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(stopped->checkpoint));
}

TEST(TrainingCheckpointsTest, ThoseFromBeforeRunsHadNamesAreOneRun) {
  RunFixture run;
  run.stop_after_steps = 12;
  run.config.checkpoint.checkpoints_kept = 1;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  testing::Rewrite(stopped->checkpoint, [](Checkpoint& state) { state.run.clear(); });
  ASSERT_EQ(ReadManifest(stopped->checkpoint)->state.run, "");
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = 3;
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->first_global_step, 12U);
  EXPECT_EQ(NamesIn(run.config.checkpoint.checkpoint_dir),
            std::vector<std::string>{"step-000000000015"});
  EXPECT_EQ(ReadManifest(resumed->checkpoint)->state.run, "");
}

TEST(TrainingCheckpointsTest, AutoWithDamagedOnesAloneDoesNotStartAfresh) {
  RunFixture run;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  std::filesystem::resize_file(std::filesystem::path(stopped->checkpoint) / ShardName(0), 60);
  run.config.checkpoint.resume = "auto";
  const auto refused = run.Run(engine);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(refused.error().message(), HasSubstr("--new-run"));
  EXPECT_TRUE(std::filesystem::exists(stopped->checkpoint));
}

TEST(TrainingCheckpointsTest, AutoGoesOnFromTheBestOneWhereNoOtherIsIntact) {
  RunFixture run;
  run.config.checkpoint.keep_best = true;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  engine.scores_state = true;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  const auto best = PublishedSteps(folder / "best");
  ASSERT_TRUE(best.has_value() && best->size() == 1U);
  const auto regular = PublishedSteps(folder);
  ASSERT_TRUE(regular.has_value());
  for (const std::uint64_t step : *regular) {
    std::filesystem::remove_all(PublishedFolder(folder, step));
  }
  run.config.checkpoint.resume = "auto";
  run.stop_after_steps = UINT64_MAX;
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->first_global_step, best->front());
}

TEST(TrainingCheckpointsTest, AFolderHasOneRunAtATime) {
  RunFixture run;
  run.stop_after_steps = 3;
  ScriptedEngine engine;
  std::filesystem::create_directories(run.config.checkpoint.checkpoint_dir);
  {
    const auto other = FolderLock::Take(run.config.checkpoint.checkpoint_dir);
    ASSERT_TRUE(other.has_value() && other->has_value());
    const auto refused = run.Run(engine);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(refused.error().message(), HasSubstr("another run writes its checkpoints there"));
    EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(::getpid())));
  }
  EXPECT_TRUE(run.Run(engine).has_value()) << "the other one is over";
  EXPECT_FALSE(std::filesystem::exists(
      std::filesystem::path(run.config.checkpoint.checkpoint_dir) / ".lock"));
}

TEST(TrainingCheckpointsTest, WhatCannotBeReadIsNotTakenForDamage) {
  RunFixture run;
  run.stop_after_steps = 12;
  run.config.checkpoint.checkpoint_every_steps = 4;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  // A manifest of a later version: intact, but not for this program.
  const std::filesystem::path manifest =
      std::filesystem::path(stopped->checkpoint) / std::string(kManifestName);
  auto text = ReadText(manifest, kManifestBytesMax);
  ASSERT_TRUE(text.has_value());
  const auto at = text->find("forebay-checkpoint-2");
  ASSERT_NE(at, std::string::npos);
  text->replace(at, 20, "forebay-checkpoint-9");
  // Its first line has the hash of what follows.
  const std::string covered = text->substr(text->find('\n') + 1);
  const std::uint64_t hash = Checksum(std::as_bytes(std::span(covered.data(), covered.size())));
  const std::string sealed = fmt::format("{{\"xxh3\": \"{:016x}\",\n{}", hash, covered);
  ASSERT_TRUE(WriteSynced(manifest, sealed).has_value());
  run.config.checkpoint.resume = "auto";
  const auto refused = run.Run(engine);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition) << refused.error().ToString();
  EXPECT_TRUE(std::filesystem::exists(stopped->checkpoint)) << "not moved aside";
}

TEST(TrainingCheckpointsTest, AManifestInTheWorkingFolderNamesItsCheckpoint) {
  RunFixture run;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(stopped->checkpoint);
  std::vector<std::string> skipped;
  const auto found = FindCheckpoint(std::string(kManifestName), skipped);
  std::filesystem::current_path(before);
  ASSERT_TRUE(found.has_value()) << found.error().ToString();
  EXPECT_EQ(*found, ".");
}

TEST(TrainingCheckpointsTest, NewRunContradictsAutoAndNeedsAFolder) {
  RunFixture run;
  run.config.checkpoint.new_run = true;
  run.config.checkpoint.resume = "auto";
  ScriptedEngine engine;
  const auto both = run.Run(engine);
  ASSERT_FALSE(both.has_value());
  EXPECT_EQ(both.error().code(), ErrorCode::kInvalidArgument);
  run.config.checkpoint.resume.clear();
  run.config.checkpoint.checkpoint_dir.clear();
  const auto nowhere = run.Run(engine);
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code(), ErrorCode::kInvalidArgument);
}

TEST(TrainingCheckpointsTest, NamedCheckpointMustLoad) {
  RunFixture run;
  run.config.checkpoint.resume = run.folder.path() / "none";
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(report.error().message(), HasSubstr("checkpoint.resume"));
}

TEST(TrainingCheckpointsTest, FolderAndManifestNameACheckpoint) {
  RunFixture run;
  run.stop_after_steps = 12;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value());
  for (const std::string& path : {run.config.checkpoint.checkpoint_dir, stopped->checkpoint,
                                  stopped->checkpoint + "/manifest.json"}) {
    RunFixture other;
    other.config.checkpoint.resume = path;
    other.stop_after_steps = 1;
    const auto resumed = other.Run(engine);
    ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
    EXPECT_EQ(resumed->first_global_step, 12U);
  }
}

TEST(TrainingCheckpointsTest, CheckpointHoldsTheRunsConfiguration) {
  RunFixture run;
  run.config.train.momentum = 0.625;
  ScriptedEngine engine;
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value());
  const auto manifest = ReadManifest(report->checkpoint);
  ASSERT_TRUE(manifest.has_value());
  TrainConfig read;
  ASSERT_TRUE(ApplyToml(read, manifest->state.configuration, "stored").has_value());
  EXPECT_EQ(read.train.momentum, 0.625);
  EXPECT_EQ(manifest->state.layout, "1 x 1");
}

TEST(TrainingCheckpointsTest, ClockAsksForCheckpoints) {
  RunFixture run;
  run.config.evaluation.evaluate_every_epochs = 0;
  // The fixture's clock ticks by a microsecond: some three times per step.
  run.config.checkpoint.checkpoint_every_minutes = 20e-6 / 60;
  run.config.checkpoint.checkpoints_kept = 100;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  const std::filesystem::directory_iterator entries(run.config.checkpoint.checkpoint_dir);
  const auto count = std::distance(begin(entries), end(entries));
  EXPECT_GE(count, 3);
  EXPECT_LE(count, 6);
}

TEST(TrainingCheckpointsTest, BestEvaluationIsKeptApart) {
  RunFixture run;
  run.config.checkpoint.keep_best = true;
  run.config.checkpoint.checkpoints_kept = 1;
  ScriptedEngine engine;  // finds as much in every evaluation: the first one is the best
  ASSERT_TRUE(run.Run(engine).has_value());
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  const auto best = ReadManifest(folder / "best" / "step-000000000010");
  ASSERT_TRUE(best.has_value()) << best.error().ToString();
  ASSERT_TRUE(best->state.best.has_value());
  EXPECT_EQ(best->state.best->epoch, 0U);
  EXPECT_EQ(best->state.best->metric, "accuracy");
  const auto last = ReadManifest(folder / "step-000000000030");
  ASSERT_TRUE(last.has_value()) << last.error().ToString();
  EXPECT_EQ(last->state.best, best->state.best);
}

TEST(TrainingCheckpointsTest, SignalEndsAnEvaluationWhichTheNextRunMakesUp) {
  RunFixture run;
  run.stop_after_validated = 32;
  ScriptedEngine engine;
  const auto stopped = run.Run(engine);
  ASSERT_TRUE(stopped.has_value()) << stopped.error().ToString();
  EXPECT_FALSE(stopped->completed);
  EXPECT_EQ(stopped->steps, 10U);
  EXPECT_TRUE(stopped->evaluations.empty());
  run.stop_after_validated = UINT64_MAX;
  run.config.checkpoint.resume = "auto";
  const auto resumed = run.Run(engine);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
  EXPECT_EQ(resumed->evaluations.size(), 3U);
  EXPECT_EQ(resumed->evaluations[0].samples, 70U);
}

TEST(TrainingCheckpointsTest, OtherSeedOrBatchThanTheCheckpointIsRefused) {
  RunFixture run;
  run.stop_after_steps = 7;
  ScriptedEngine engine;
  ASSERT_TRUE(run.Run(engine).has_value());
  run.config.checkpoint.resume = "auto";
  run.config.train.seed = 99;
  const auto other_seed = run.Run(engine);
  ASSERT_FALSE(other_seed.has_value());
  EXPECT_EQ(other_seed.error().code(), ErrorCode::kFailedPrecondition);
  run.config.train.seed = 1;
  run.config.train.global_batch = 16;
  const auto other_batch = run.Run(engine);
  ASSERT_FALSE(other_batch.has_value());
  EXPECT_THAT(other_batch.error().message(), HasSubstr("train.global_batch is 32"));
}

TEST(TrainingCheckpointsTest, PeriodicCheckpointThatFailsIsReportedAndTrainingGoesOn) {
  RunFixture run;
  run.config.checkpoint.checkpoint_every_steps = 10;
  ScriptedEngine engine;
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  run.on_step = [&](std::uint64_t steps) {
    // A file where the folder of the checkpoint would be made.
    if (steps == 10) std::ofstream(UnpublishedFolder(folder, 10)) << "x";
  };
  const auto report = run.Run(engine);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_THAT(run.printed, Contains(HasSubstr("checkpoint of step 10 not written")));
  std::vector<std::string> skipped;
  EXPECT_EQ(NewestCheckpoint(folder, skipped).value().value().filename(), "step-000000000030");
}

TEST(TrainingCheckpointsTest, StateThatIsNotFiniteIsNotSavedAndAutoGoesOnFromBefore) {
  for (const char* policy : {"stop", "skip"}) {
    RunFixture run;
    run.config.train.nan_policy = policy;
    run.config.checkpoint.checkpoint_every_steps = 3;
    ScriptedEngine engine;
    engine.poisoned_by_step = 8;  // after which the checkpoint of step 9 is due
    const auto report = run.Run(engine);
    ASSERT_FALSE(report.has_value()) << policy;
    EXPECT_EQ(engine.faults, 1U);
    EXPECT_EQ(report.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(report.error().message(), HasSubstr("step 9: value 0 of tensor state is nan"));
    run.config.checkpoint.resume = "auto";
    ScriptedEngine sound;
    const auto resumed = run.Run(sound);
    ASSERT_TRUE(resumed.has_value()) << resumed.error().ToString();
    EXPECT_EQ(resumed->first_global_step, 6U);
  }
}

TEST(TrainingCheckpointsTest, LastCheckpointThatCannotBeWrittenIsAnError) {
  RunFixture run;
  ScriptedEngine engine;
  const std::filesystem::path folder = run.config.checkpoint.checkpoint_dir;
  run.on_step = [&](std::uint64_t steps) {
    if (steps != 30) return;
    std::filesystem::remove_all(folder);
    std::ofstream(folder) << "x";
  };
  const auto report = run.Run(engine);
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message(), HasSubstr("step-000000000030"));
}

}  // namespace
}  // namespace forebay::train
