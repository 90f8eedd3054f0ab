// Peaks of memory by class, against those that follow from the schedule.
#include "trainer/schedule/memory/plan_peaks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>

#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/testing/graph_fixture.h"

namespace forebay::train::plan_peaks_test {

StepPlan PlanOf(std::string_view schedule) {
  PlanRequest request;
  request.stages = CutIntoStages(EvenChain(2), {{0, 1}}).value();
  request.layout = {.replicas = 1, .stages = 2};
  request.micro_batches = 4;
  request.schedule = FindPipelineSchedule(schedule).value();
  return BuildPlan(request).value();
}

std::uint64_t Of(const MemoryPeaks& peaks, MemoryClass memory) {
  return peaks[static_cast<std::size_t>(memory)];
}

// EvenChain: 500 bytes are saved by a module and micro-batch, of which 100 leave the stage.
TEST(PlanPeaksTest, GpipeKeepsAllMicroBatchesAnd1f1bAsManyAsStages) {
  EXPECT_EQ(Of(PeaksByClass(PlanOf("gpipe"), 0), MemoryClass::kSaved), 4 * 400U);
  EXPECT_EQ(Of(PeaksByClass(PlanOf("1f1b"), 0), MemoryClass::kSaved), 2 * 400U);
  EXPECT_EQ(Of(PeaksByClass(PlanOf("1f1b"), 1), MemoryClass::kSaved), 500U);
}

TEST(PlanPeaksTest, OnlyTheFirstStageHasInputsAndEachItsParameters) {
  const StepPlan plan = PlanOf("1f1b");
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const MemoryPeaks peaks = PeaksByClass(plan, rank);
    EXPECT_EQ(Of(peaks, MemoryClass::kResident), plan.programs[rank].resident_bytes);
    EXPECT_GE(Of(peaks, MemoryClass::kMessages), 100U);
    EXPECT_EQ(Of(peaks, MemoryClass::kInputs) % (rank == 0 ? 64 : 8), 0U);
    EXPECT_GT(Of(peaks, MemoryClass::kInputs), 0U);
  }
}

// Over links that take no time, buffers live as long as the instructions say.
TEST(PlanPeaksTest, ClassesTogetherAreNoLessThanTheSimulatedPeak) {
  SimulationCosts costs;
  for (LinkCost* const link : {&costs.message, &costs.collective, &costs.swap}) {
    *link = {.latency_ns = 0, .bytes_per_ns = 1e15};
  }
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    RandomCase made = MakeRandomCase(random);
    if (made.plan.trains && round % 2 == 0) made.plan = MoveAtRandom(random, made.plan);
    const Simulation simulation = SimulatePlan(made.plan, costs).value();
    for (std::uint32_t rank = 0; rank < made.plan.layout.ranks(); ++rank) {
      const MemoryPeaks peaks = PeaksByClass(made.plan, rank);
      const std::uint64_t sum = std::accumulate(peaks.begin(), peaks.end(), std::uint64_t{0});
      EXPECT_GE(simulation.ranks[rank].peak_bytes, Of(peaks, MemoryClass::kResident));
      EXPECT_GE(sum, simulation.ranks[rank].peak_bytes);
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace forebay::train::plan_peaks_test
