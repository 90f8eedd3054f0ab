// What the memory plan says of bytes, against the bytes that LibTorch allocates.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/measure/tensor_bytes.h"
#include "trainer/exec/testing/tiny_models.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/memory/memory_planner.h"

namespace forebay::train::memory_peak_test {

constexpr std::uint32_t kSamples = 128;
constexpr std::uint32_t kMicroBatches = 4;
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

class SyntheticSource final : public MicroBatchSource {
 public:
  explicit SyntheticSource(const testing::TinyModel& tiny) : tiny_(tiny) {}
  Result<torch::Tensor> Input(std::uint32_t micro_batch) override {
    return tiny_.input(micro_batch, kSamples);
  }
  Result<torch::Tensor> Target(std::uint32_t micro_batch) override {
    return tiny_.target(micro_batch, kSamples);
  }

 private:
  const testing::TinyModel& tiny_;
};

struct Figures {
  std::uint64_t predicted = 0;  // without what is resident
  std::uint64_t measured = 0;
  std::uint64_t digest = 0;
  std::uint64_t step_ns = 0;
  SwapFigures swap;
};

class MemoryPeak : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(SetTorchThreads(1).has_value());
  }

  void SetUp() override {
    tiny_ = testing::TinyModels()[static_cast<std::size_t>(GetParam())]();
    measure_ = MeasureModel(tiny_.model, tiny_.input(1, kSamples), tiny_.target(1, kSamples),
                            NowNs)
                   .value();
  }

  // Three steps of one rank, all micro-batches forward and then all backward.
  Figures Run(std::function<Result<StepKeeping>(const StepPlan&)> keeping) {
    HybridOptions options;
    options.micro_batches = kMicroBatches;
    Figures figures;
    TensorBytes bytes;
    options.keeping = [&](const StepPlan& plan) -> Result<StepKeeping> {
      FOREBAY_ASSIGN(StepKeeping choices, keeping(plan));
      FOREBAY_ASSIGN(const StepPlan moved, MoveSaved(plan, choices));
      FOREBAY_ASSIGN(const PlanFacts facts, CheckPlan(moved, {}));
      figures.predicted = facts.peak_bytes[0] - plan.programs[0].resident_bytes;
      return choices;
    };
    auto ends = MakeLocalTransports(1);
    Communicator communicator(std::move(ends[0]), kPatienceNs);
    const auto trainer =
        HybridTrainer::Make(tiny_.model, measure_, communicator, options,
                            {.layout = {},
                             .schedule = FindPipelineSchedule("gpipe").value(),
                             .split = {{0}}})
            .value();
    SyntheticSource source(tiny_);
    const std::vector<std::uint32_t> samples(kMicroBatches, kSamples);
    for (int step = 0; step < 3; ++step) {
      bytes.BeginPeak();
      const std::uint64_t before = bytes.Live();
      const auto done = trainer->TrainStep(0.01, samples, source);
      EXPECT_TRUE(done.has_value()) << done.error().ToString();
      figures.measured = bytes.Peak() - before;
      figures.step_ns = trainer->last_report().step_ns;
    }
    figures.digest = trainer->Digest().value();
    figures.swap = trainer->swap_figures();
    return figures;
  }

  Figures RunAll(const ModuleKeeping& keeping) {
    return Run([&](const StepPlan& plan) -> Result<StepKeeping> {
      return KeepAll(plan, keeping);
    });
  }

  void Print(const char* name, const Figures& figures) const {
    std::printf("%s, %s: %.3f MB predicted, %.3f MB measured, step %.1f ms, swapped %.3f MB, "
                "%.3f MB could not be\n",
                tiny_.model.name.c_str(), name, static_cast<double>(figures.predicted) * 1e-6,
                static_cast<double>(figures.measured) * 1e-6,
                static_cast<double>(figures.step_ns) * 1e-6,
                static_cast<double>(figures.swap.out_bytes) * 1e-6,
                static_cast<double>(figures.swap.kept_bytes) * 1e-6);
  }

  // What the plan says is what is allocated, within a twentieth.
  static void ExpectForeseen(const Figures& figures) {
    EXPECT_GE(figures.measured * 100, figures.predicted * 95);
    EXPECT_LE(figures.measured * 100, figures.predicted * 105);
  }

  testing::TinyModel tiny_;
  ModelMeasure measure_;
};

TEST_P(MemoryPeak, MovedValuesAreNotHeld) {
  const Figures kept = RunAll({});
  Print("kept", kept);
  ExpectForeseen(kept);
  const Figures dropped = RunAll({.graph = Keeping::kRecompute});
  Print("recomputed", dropped);
  ExpectForeseen(dropped);
  EXPECT_LT(dropped.measured, kept.measured);
  EXPECT_EQ(dropped.digest, kept.digest);
  const Figures swapped = RunAll({.graph = Keeping::kSwap, .output = Keeping::kSwap});
  Print("swapped", swapped);
  EXPECT_GT(swapped.swap.out_bytes, 0U);
  ExpectForeseen(swapped);
  EXPECT_LT(swapped.measured, kept.measured);
  EXPECT_EQ(swapped.digest, kept.digest);
}

TEST_P(MemoryPeak, APlannedBudgetIsMet) {
  const Figures kept = RunAll({});
  std::string reason;
  const Figures planned = Run([&](const StepPlan& plan) -> Result<StepKeeping> {
    MemoryRequest request;
    request.plan = plan;
    request.costs.swap.bytes_per_ns = 2.0;
    request.budget_bytes = plan.programs[0].resident_bytes + kept.predicted / 4 * 3;
    request.most_instructions = 300'000;
    FOREBAY_ASSIGN(const MemoryChoice choice, PlanMemory(request));
    reason = choice.reason;
    return choice.keeping;
  });
  Print("planned", planned);
  std::printf("%s\n", reason.c_str());
  EXPECT_LE(planned.predicted, kept.predicted / 4 * 3);
  ExpectForeseen(planned);
  EXPECT_LT(planned.measured, kept.measured);
  EXPECT_EQ(planned.digest, kept.digest);
}

INSTANTIATE_TEST_SUITE_P(TinyModels, MemoryPeak, ::testing::Range(0, 4));

}  // namespace forebay::train::memory_peak_test
