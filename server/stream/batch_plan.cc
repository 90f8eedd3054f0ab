// The order gives positions in the selection, and the selection gives samples of the data set.
#include "server/stream/batch_plan.h"

#include <algorithm>
#include <span>

namespace forebay::stream {

Result<BatchPlan> PlanBatch(const StreamSpec& spec, const Order& order, const BatchName& name) {
  FOREBAY_ASSIGN(const StepSlice slice, SliceOf(spec, name));
  // Positions up to n come from the order in one go; padded ones repeat its beginning. In the last
  // step, the share of a rank may begin behind n, where the order has nothing.
  const std::uint64_t n = spec.plan.sample_count();
  const std::uint64_t real =
      slice.first >= n ? 0 : std::min<std::uint64_t>(slice.count, n - slice.first);
  BatchPlan plan{.name = name,
                 .first_position = slice.first,
                 .padded_count = static_cast<std::uint32_t>(slice.count - real),
                 .samples = std::vector<std::uint64_t>(slice.count)};
  if (real > 0) order.Forward(Position(slice.first), std::span(plan.samples).first(real));
  for (std::uint64_t i = real; i < slice.count; ++i) {
    plan.samples[i] = order.Forward(spec.plan.Resolve(slice.first + i).position);
  }
  // Until here they are indexes in the selection.
  for (std::uint64_t& sample : plan.samples) sample = spec.selection->At(sample).value();
  return plan;
}

}  // namespace forebay::stream
