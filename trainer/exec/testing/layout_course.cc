// Trains one tiny model under a list of layouts, ranks being threads over local transports, and
// compares digests. Samples depend on step and micro-batch alone, so that every layout sees the
// same.
#include "trainer/exec/testing/layout_course.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/exec/device/device.h"
#include "trainer/numerics/random_key.h"

namespace forebay::train::testing {
namespace {

constexpr std::uint32_t kSamples = 4;  // of a micro-batch
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

// Samples that depend on step and micro-batch only.
class SyntheticSource final : public MicroBatchSource {
 public:
  SyntheticSource(const TinyModel& tiny, std::uint64_t step, std::vector<std::uint32_t> samples)
      : tiny_(tiny), step_(step), samples_(std::move(samples)) {}

  Result<torch::Tensor> Input(std::uint32_t micro_batch) override {
    return tiny_.input(LayerSeed(9, step_, micro_batch, "samples"), samples_[micro_batch]);
  }
  Result<torch::Tensor> Target(std::uint32_t micro_batch) override {
    return tiny_.target(LayerSeed(9, step_, micro_batch, "samples"), samples_[micro_batch]);
  }

 private:
  const TinyModel& tiny_;
  std::uint64_t step_;
  std::vector<std::uint32_t> samples_;
};

std::uint64_t NowNs() { return 0; }

torch::Device DeviceOfTests() {
  const char* const name = std::getenv("FOREBAY_TEST_DEVICE");
  const Result<torch::Device> device = ChooseDevice(name == nullptr ? "cpu" : name, 0);
  EXPECT_TRUE(device.has_value()) << (device.has_value() ? "" : device.error().ToString());
  return device.has_value() ? *device : torch::Device(torch::kCPU);
}

Result<Trained> TrainRank(const TinyModel& tiny, const ModelMeasure& measure, const Course& run,
                          const HybridOptions& options, std::unique_ptr<Transport> transport) {
  Communicator communicator(std::move(transport), kPatienceNs);
  FOREBAY_ASSIGN(const std::unique_ptr<HybridTrainer> trainer,
                 HybridTrainer::Make(tiny.model, measure, communicator, options,
                                     run.layouts.front()));
  std::vector<std::uint32_t> samples(kCourseMicroBatches, kSamples);
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
  trained.activation_bytes = trainer->last_account().at(ByteChannel::kActivation);
  FOREBAY_ASSIGN(trained.digest, trainer->Digest());
  return trained;
}

}  // namespace

HybridLayout LayoutOf(std::uint32_t replicas, StageSplit split,
                      std::string_view schedule) {
  return {.layout = {.replicas = replicas, .stages = split.stages()},
          .schedule = FindPipelineSchedule(schedule).value(),
          .split = std::move(split)};
}

HybridOptions OptionsOf(std::string_view optimiser, double clip_norm) {
  HybridOptions options;
  options.stage.device = DeviceOfTests();
  options.stage.seed = 5;
  options.stage.optimiser.optimiser = FindOptimiser(optimiser).value();
  options.stage.weight_decay = 0.01;
  options.stage.clip_norm = clip_norm;
  options.micro_batches = kCourseMicroBatches;
  options.bucket_bytes = 1000;
  options.timeout_ns = kPatienceNs;
  options.stage.swap.least_bytes = 1;
  return options;
}

Trained Train(const TinyModel& tiny, const Course& course, const HybridOptions& options) {
  const torch::Tensor input = tiny.input(1, kSamples).to(options.stage.device);
  const torch::Tensor target = tiny.target(1, kSamples).to(options.stage.device);
  const Result<ModelMeasure> measure =
      MeasureModel(tiny.model, input, target, NowNs, options.stage.precision);
  EXPECT_TRUE(measure.has_value()) << (measure.has_value() ? "" : measure.error().ToString());
  if (!measure.has_value()) return {};
  const std::uint32_t ranks = course.layouts.front().layout.ranks();
  auto ends = MakeLocalTransports(ranks);
  std::vector<Result<Trained>> results(ranks, Error(ErrorCode::kUnknown, "did not run"));
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);  // OpenMP counts threads for each thread
      results[rank] = TrainRank(tiny, *measure, course, options, std::move(ends[rank]));
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

void ExpectSameUnderEveryLayout(const TinyModel& tiny, const HybridOptions& options, int steps) {
  const auto parts = static_cast<std::uint32_t>(tiny.model.parts.size());
  const StageSplit whole{{0}};
  const StageSplit halves{{0, parts / 2}};
  const StageSplit thirds{{0, parts / 3, 2 * parts / 3}};
  const StageSplit uneven{{0, 1}};
  const Trained alone = Train(
      tiny, {.layouts = {LayoutOf(1, whole, "1f1b")}, .steps = steps}, options);
  ASSERT_NE(alone.digest, 0U);
  EXPECT_LT(alone.last_loss, alone.first_loss) << tiny.model.name << " learns nothing";
  struct Case {
    const char* name;
    Course course;
  };
  const std::vector<Case> cases = {
      {"DP2", {.layouts = {LayoutOf(2, whole, "gpipe")}}},
      {"PP2 gpipe", {.layouts = {LayoutOf(1, halves, "gpipe")}}},
      {"PP2 1f1b", {.layouts = {LayoutOf(1, halves, "1f1b")}}},
      {"PP3 1f1b", {.layouts = {LayoutOf(1, thirds, "1f1b")}}},
      {"DP2xPP2", {.layouts = {LayoutOf(2, uneven, "1f1b")}}},
      {"switching",
       {.layouts = {LayoutOf(2, whole, "gpipe"), LayoutOf(1, halves, "1f1b"),
                    LayoutOf(1, uneven, "gpipe")},
        .switch_every = 5}},
  };
  for (Case other : cases) {
    other.course.steps = steps;
    const Trained trained = Train(tiny, other.course, options);
    EXPECT_EQ(trained.digest, alone.digest) << tiny.model.name << " " << other.name;
    EXPECT_NEAR(trained.evaluated, alone.evaluated, 1e-9 * std::abs(alone.evaluated));
  }
}

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

void ExpectSameWhenMoved(const TinyModel& tiny, const HybridOptions& options) {
  const auto parts = static_cast<std::uint32_t>(tiny.model.parts.size());
  const Course alone{.layouts = {LayoutOf(1, {{0}}, "1f1b")}, .steps = 6};
  const Course halves{.layouts = {LayoutOf(1, {{0, parts / 2}}, "gpipe")}, .steps = 6};
  const Course switching{.layouts = {LayoutOf(2, {{0}}, "gpipe"),
                                     LayoutOf(1, {{0, parts / 3}}, "1f1b")},
                         .switch_every = 2,
                         .steps = 6};
  const std::uint64_t kept = Train(tiny, alone, options).digest;
  ASSERT_NE(kept, 0U);
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

}  // namespace forebay::train::testing
