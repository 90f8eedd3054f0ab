// The optimisers over plain floats. Each formula of optimiser_formulas.h is instantiated once, as
// a loop over the elements, and its descriptor is an entry of a table. Norms and clipping are here
// as well, because they belong to the update. This file is compiled with -ffp-contract=off: a
// compiler that fuses multiply-adds does so in vectors and not in the elements that remain, so
// that results would depend on how parameters are laid out.
#include "trainer/numerics/optimiser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "trainer/comm/collectives.h"
#include "trainer/numerics/optimiser_formulas.h"

namespace forebay::train {
namespace {

// Applies the formula element by element. An element's inputs are all read before any of its
// results is written: where arrays lie at the same offset of their pages, a processor takes a load
// for one that needs the store before it, and the update takes eight times as long. The arguments
// are pointers, because the compiler does not vectorise loops over checked indices.
template <typename Formula, std::size_t... State>
void UpdateElements(const typename Formula::Factors& factors, std::size_t count, float* weights,
                    const float* gradient, const std::array<float*, sizeof...(State)>& states,
                    std::index_sequence<State...>) {
  for (std::size_t i = 0; i < count; ++i) {
    float weight = weights[i];
    std::array<float, sizeof...(State)> own = {states[State][i]...};
    Formula::Update(factors, weight, gradient[i], own[State]...);
    ((states[State][i] = own[State]), ...);
    weights[i] = weight;
  }
}

template <typename Formula>
void UpdateFloats(const OptimiserOptions& options, const UpdateStep& step,
                  std::span<float> weights, std::span<const float> gradient,
                  std::span<const std::span<float>> states) {
  std::array<float*, Formula::kStates.size()> pointers = {};
  std::ranges::transform(states, pointers.begin(), [](auto state) { return state.data(); });
  UpdateElements<Formula>(Formula::FactorsOf(options, step), weights.size(), weights.data(),
                          gradient.data(), pointers,
                          std::make_index_sequence<Formula::kStates.size()>());
}

// One descriptor for each formula, in the order of the list.
template <typename... Formula>
constexpr std::array<Optimiser, sizeof...(Formula)> TableOf(const std::tuple<Formula...>*) {
  return {Optimiser{
      .name = Formula::kName, .states = Formula::kStates, .update = &UpdateFloats<Formula>}...};
}

constexpr auto kOptimisers = TableOf(static_cast<const OptimiserFormulas*>(nullptr));

}  // namespace

std::span<const Optimiser> Optimisers() { return kOptimisers; }

Result<const Optimiser*> FindOptimiser(std::string_view name) {
  const auto* const found = std::ranges::find(kOptimisers, name, &Optimiser::name);
  if (found != kOptimisers.end()) return found;
  std::vector<std::string_view> names;
  for (const Optimiser& optimiser : kOptimisers) names.push_back(optimiser.name);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("unknown optimiser \"{}\": {}", name, fmt::join(names, " or ")));
}

void UpdateWeights(const OptimiserOptions& options, const UpdateStep& step,
                   std::span<float> weights, std::span<const float> gradient,
                   std::span<const std::span<float>> states) {
  FOREBAY_CHECK(gradient.size() == weights.size());
  FOREBAY_CHECK(states.size() == options.optimiser->states.size());
  for (const std::span<float>& state : states) FOREBAY_CHECK(state.size() == weights.size());
  options.optimiser->update(options, step, weights, gradient, states);
}

double SquaredNorm(std::span<const float> values) {
  // The blocks begin at the same places whatever the length of the span, and the tree has one
  // shape, so that the norm has the same bits on every machine.
  constexpr std::size_t kBlock = 1024;
  std::vector<double> sums(std::max<std::size_t>(1, (values.size() + kBlock - 1) / kBlock));
  for (std::size_t at = 0; at < values.size(); ++at) {
    const double value = values[at];
    sums[at / kBlock] += value * value;
  }
  std::vector<double*> leaves;
  for (double& sum : sums) leaves.push_back(&sum);
  SumTree<double>(leaves, 1);
  return sums[0];
}

double ClipScale(double squared, double limit) {
  const double norm = std::sqrt(squared);
  return limit > 0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace forebay::train
