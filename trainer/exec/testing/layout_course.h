// The same training under every layout, on threads: what a test of a model asks for to prove that
// its weights do not depend on the layout.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/testing/tiny_models.h"

namespace forebay::train::testing {

inline constexpr std::uint32_t kCourseMicroBatches = 8;

// Layouts that are trained with one after the other.
struct Course {
  std::vector<HybridLayout> layouts;
  int switch_every = 0;  // steps; 0: the first layout to the end
  int steps = 20;
};

struct Trained {
  std::uint64_t digest = 0;
  double first_loss = 0;
  double last_loss = 0;
  double evaluated = 0;  // the loss of samples that were not trained with
  std::uint64_t swapped_bytes = 0;  // by the first rank, under the last layout
  std::uint64_t activation_bytes = 0;  // that it sent in the last step
};

HybridLayout LayoutOf(std::uint32_t replicas, StageSplit split,
                      std::string_view schedule);

// Of kCourseMicroBatches micro-batches, in buckets that every part crosses. On the device that
// $FOREBAY_TEST_DEVICE names, which all ranks share; else on the processor.
HybridOptions OptionsOf(std::string_view optimiser, double clip_norm);

// Trains on samples that depend on step and micro-batch only; the last micro-batch of a step is a
// short one. All ranks on threads; a failed one, or ranks that disagree, fail the test.
Trained Train(const TinyModel& tiny, const Course& course, const HybridOptions& options);

// Fails the test where the digest under replicas, stages, both schedules or switches of them is
// not that of one rank, or where nothing is learnt in `steps`.
void ExpectSameUnderEveryLayout(const TinyModel& tiny, const HybridOptions& options,
                                int steps = 20);

// Parts whose index leaves no rest by `every` are treated so, the others kept.
HybridOptions Moving(HybridOptions options, ModuleKeeping keeping, std::size_t every);

// Fails the test where parts, all or every second one, that are swapped or computed again do not
// end in the digest of one rank that keeps everything: on one rank, on two and over a switch.
void ExpectSameWhenMoved(const TinyModel& tiny, const HybridOptions& options);

}  // namespace forebay::train::testing
