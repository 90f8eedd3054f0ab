// PeaksByClass: what a rank's memory is taken by, from its plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/schedule/step_plan.h"

namespace forebay::train {

enum class MemoryClass : std::uint8_t {
  kResident,  // parameters, gradients, the optimiser's state
  kSaved,     // kept from forward to backward, values of modules included
  kMessages,  // activations and gradients that cross stages, or arrive to be reduced
  kInputs,    // inputs and targets
  kScratch,   // of operators, while an instruction lasts
};
inline constexpr std::size_t kMemoryClasses = 5;

using MemoryPeaks = std::array<std::uint64_t, kMemoryClasses>;  // bytes, by class

std::string_view Name(MemoryClass memory);

// Each class's own peak over the step; they need not come at the same time, so that their sum is
// no less than the rank's peak. The plan must have passed CheckPlan.
MemoryPeaks PeaksByClass(const StepPlan& plan, std::uint32_t rank);

}  // namespace forebay::train
