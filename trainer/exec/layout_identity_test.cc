// The same training under every layout, on threads: bit-identical weights.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>

#include "trainer/comm/local_transport.h"
#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/numerics/random_key.h"
#include "trainer/exec/testing/tiny_models.h"

namespace forebay::train {
namespace {

constexpr std::uint32_t kMicroBatches = 8;
constexpr std::uint32_t kSamples = 4;  // of a micro-batch
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

// Samples that depend on step and micro-batch only.
class SyntheticSource final : public MicroBatchSource {
 public:
  SyntheticSource(const testing::TinyModel& tiny, std::uint64_t step,
                  std::vector<std::uint32_t> samples)
      : tiny_(tiny), step_(step), samples_(std::move(samples)) {}

  Result<torch::Tensor> Input(std::uint32_t micro_batch) override {
    return tiny_.input(LayerSeed(9, step_, micro_batch, "samples"), samples_[micro_batch]);
  }
  Result<torch::Tensor> Target(std::uint32_t micro_batch) override {
    return tiny_.target(LayerSeed(9, step_, micro_batch, "samples"), samples_[micro_batch]);
  }

 private:
  const testing::TinyModel& tiny_;
  std::uint64_t step_;
  std::vector<std::uint32_t> samples_;
};

struct Course {
  std::vector<HybridLayout> layouts;  // one after the other
  int switch_every = 0;               // steps
  int steps = 20;
};

struct Trained {
  std::uint64_t digest = 0;
  double first_loss = 0;
  double last_loss = 0;
  double evaluated = 0;
  std::uint64_t swapped_bytes = 0;  // by this rank, under the last layout
};

std::uint64_t NowNs() { return 0; }

HybridLayout LayoutOf(std::uint32_t replicas, StageSplit split, Schedule schedule) {
  return {.layout = {.replicas = replicas, .stages = split.stages()},
          .schedule = schedule,
          .split = std::move(split)};
}

Result<Trained> TrainRank(const testing::TinyModel& tiny, const ModelMeasure& measure,
                          const Course& run, const HybridOptions& options,
                          std::unique_ptr<Transport> transport) {
  Communicator communicator(std::move(transport), kPatienceNs);
  FOREBAY_ASSIGN(const std::unique_ptr<HybridTrainer> trainer,
                 HybridTrainer::Make(tiny.model, measure, communicator, options,
                                     run.layouts.front()));
  std::vector<std::uint32_t> samples(kMicroBatches, kSamples);
  samples.back() = kSamples - 1;  // a short one, as at an epoch's end
  Trained trained;
  for (int step = 0; step < run.steps; ++step) {
    if (run.switch_every != 0 && step > 0 && step % run.switch_every == 0) {
      const auto next = static_cast<std::size_t>(step / run.switch_every) % run.layouts.size();
      FOREBAY_TRY(trainer->Switch(run.layouts[next]));
    }
    SyntheticSource source(tiny, static_cast<std::uint64_t>(step % 2), samples);
    FOREBAY_ASSIGN(const StageOutcome outcome, trainer->TrainStep(0.02, samples, source));
    if (step == 0) trained.first_loss = outcome.loss_sum;
    trained.last_loss = outcome.loss_sum;
  }
  SyntheticSource source(tiny, 77, samples);
  FOREBAY_ASSIGN(const StageOutcome evaluated, trainer->Evaluate(samples, source));
  trained.evaluated = evaluated.loss_sum;
  trained.swapped_bytes = trainer->swap_figures().out_bytes;
  FOREBAY_ASSIGN(trained.digest, trainer->Digest());
  return trained;
}

// All ranks on threads; they must agree.
Trained Train(const testing::TinyModel& tiny, const Course& run, const HybridOptions& options) {
  const torch::Tensor input = tiny.input(1, kSamples);
  const torch::Tensor target = tiny.target(1, kSamples);
  const ModelMeasure measure = MeasureModel(tiny.model, input, target, NowNs).value();
  const std::uint32_t ranks = run.layouts.front().layout.ranks();
  auto ends = MakeLocalTransports(ranks);
  std::vector<Result<Trained>> results(ranks, Error(ErrorCode::kUnknown, "did not run"));
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);  // OpenMP counts threads for each thread
      results[rank] = TrainRank(tiny, measure, run, options, std::move(ends[rank]));
    });
  }
  threads.clear();
  for (const Result<Trained>& result : results) {
    EXPECT_TRUE(result.has_value()) << (result.has_value() ? "" : result.error().ToString());
    if (!result.has_value()) return {};
    EXPECT_EQ(result->digest, results[0]->digest);
  }
  return *results[0];
}

HybridOptions OptionsOf(OptimiserKind kind, double clip_norm) {
  HybridOptions options;
  options.stage.seed = 5;
  options.stage.optimiser.kind = kind;
  options.stage.weight_decay = 0.01;
  options.stage.clip_norm = clip_norm;
  options.micro_batches = kMicroBatches;
  options.bucket_bytes = 1000;
  options.timeout_ns = kPatienceNs;
  options.stage.swap.least_bytes = 1;
  return options;
}

// Parts whose index leaves no rest by `every` are treated so, the others kept.
HybridOptions Moving(HybridOptions options, ModuleKeeping keeping, std::size_t every) {
  options.keeping = [=](const StepPlan& plan) -> Result<StepKeeping> {
    StepKeeping choices = KeepAll(plan, {});
    for (RankKeeping& rank : choices) {
      for (std::vector<ModuleKeeping>& parts : rank) {
        for (std::size_t at = 0; at < parts.size(); at += every) parts[at] = keeping;
      }
    }
    return choices;
  };
  return options;
}

class LayoutIdentity : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(SetTorchThreads(1).has_value()); }

  void ExpectSame(const HybridOptions& options) {
    const testing::TinyModel tiny =
        testing::TinyModels()[static_cast<std::size_t>(GetParam())]();
    const auto parts = static_cast<std::uint32_t>(tiny.model.parts.size());
    const StageSplit whole{{0}};
    const StageSplit halves{{0, parts / 2}};
    const StageSplit thirds{{0, parts / 3, 2 * parts / 3}};
    const StageSplit uneven{{0, 1}};
    const Trained alone =
        Train(tiny, {.layouts = {LayoutOf(1, whole, Schedule::k1f1b)}}, options);
    ASSERT_NE(alone.digest, 0U);
    EXPECT_LT(alone.last_loss, alone.first_loss) << tiny.model.name << " learns nothing";
    struct Case {
      const char* name;
      Course run;
    };
    const std::vector<Case> cases = {
        {"DP2", {.layouts = {LayoutOf(2, whole, Schedule::kGpipe)}}},
        {"PP2 gpipe", {.layouts = {LayoutOf(1, halves, Schedule::kGpipe)}}},
        {"PP2 1f1b", {.layouts = {LayoutOf(1, halves, Schedule::k1f1b)}}},
        {"PP3 1f1b", {.layouts = {LayoutOf(1, thirds, Schedule::k1f1b)}}},
        {"DP2xPP2", {.layouts = {LayoutOf(2, uneven, Schedule::k1f1b)}}},
        {"switching",
         {.layouts = {LayoutOf(2, whole, Schedule::kGpipe),
                      LayoutOf(1, halves, Schedule::k1f1b),
                      LayoutOf(1, uneven, Schedule::kGpipe)},
          .switch_every = 5}},
    };
    for (const Case& other : cases) {
      const Trained trained = Train(tiny, other.run, options);
      EXPECT_EQ(trained.digest, alone.digest) << tiny.model.name << " " << other.name;
      EXPECT_NEAR(trained.evaluated, alone.evaluated, 1e-9 * std::abs(alone.evaluated));
    }
  }
};

TEST_P(LayoutIdentity, SgdEndsInTheSameWeights) {
  ExpectSame(OptionsOf(OptimiserKind::kSgd, 0));
}

// All parts, or every second one, moved on one rank, on two and over a switch.
TEST_P(LayoutIdentity, MovedValuesEndInTheSameWeights) {
  const testing::TinyModel tiny = testing::TinyModels()[static_cast<std::size_t>(GetParam())]();
  const auto parts = static_cast<std::uint32_t>(tiny.model.parts.size());
  const HybridOptions options = OptionsOf(OptimiserKind::kSgd, 0);
  const Course alone{.layouts = {LayoutOf(1, {{0}}, Schedule::k1f1b)}, .steps = 6};
  const Course halves{.layouts = {LayoutOf(1, {{0, parts / 2}}, Schedule::kGpipe)}, .steps = 6};
  const Course switching{.layouts = {LayoutOf(2, {{0}}, Schedule::kGpipe),
                                     LayoutOf(1, {{0, parts / 3}}, Schedule::k1f1b)},
                         .switch_every = 2,
                         .steps = 6};
  const std::uint64_t kept = Train(tiny, alone, options).digest;
  for (const std::size_t every : {1U, 2U}) {
    for (const ModuleKeeping& keeping :
         {ModuleKeeping{.graph = Keeping::kRecompute}, ModuleKeeping{.graph = Keeping::kSwap},
          ModuleKeeping{.graph = Keeping::kSwap, .output = Keeping::kSwap},
          ModuleKeeping{.graph = Keeping::kRecompute, .output = Keeping::kSwap}}) {
      const HybridOptions moving = Moving(options, keeping, every);
      for (const Course& course : {alone, halves, switching}) {
        const Trained trained = Train(tiny, course, moving);
        EXPECT_EQ(trained.digest, kept)
            << tiny.model.name << " every " << every << ", " << KeepingName(keeping.graph)
            << " and " << KeepingName(keeping.output) << " outputs, over "
            << course.layouts.front().layout.ranks() << " ranks";
        if (keeping.graph == Keeping::kSwap) {
          EXPECT_GT(trained.swapped_bytes, 0U);
        }
      }
    }
  }
}

TEST_P(LayoutIdentity, ClippedAdamWEndsInTheSameWeights) {
  ExpectSame(OptionsOf(OptimiserKind::kAdamW, 0.5));
}

INSTANTIATE_TEST_SUITE_P(TinyModels, LayoutIdentity, ::testing::Range(0, 4));

TEST(LayoutIdentityTest, AnotherSeedEndsInOtherWeights) {
  const testing::TinyModel tiny = testing::TinyModels()[0]();
  HybridOptions options = OptionsOf(OptimiserKind::kSgd, 0);
  const Course run{.layouts = {LayoutOf(1, {{0}}, Schedule::k1f1b)}, .steps = 2};
  const Trained first = Train(tiny, run, options);
  options.stage.seed = 6;
  EXPECT_NE(Train(tiny, run, options).digest, first.digest);
}

}  // namespace
}  // namespace forebay::train
