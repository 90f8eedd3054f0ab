// The part that both gatherers share. It computes the samples of a batch from the batch's name,
// with the order and the selection of its stream.
#include "server/stream/gatherer.h"

#include <algorithm>

namespace forebay::stream {

Status Gatherer::Plan(const StreamSpec& spec, const Order& order, const BatchName& name,
                      PackedPlan packed) {
  FOREBAY_ASSIGN(const StepSlice slice, SliceOf(spec, name));
  name_ = name;
  first_position_ = slice.first;

  // Positions up to n come from the order in one go; padded ones repeat its beginning. In the last
  // step, the share of a rank may begin behind n, where the order has nothing.
  const std::uint64_t n = spec.plan.sample_count();
  const std::uint64_t real =
      slice.first >= n ? 0 : std::min<std::uint64_t>(slice.count, n - slice.first);
  padded_count_ = static_cast<std::uint32_t>(slice.count - real);
  indices_.resize(slice.count);
  if (real > 0) order.Forward(Position(slice.first), std::span(indices_).first(real));
  for (std::uint64_t i = real; i < slice.count; ++i) {
    indices_[i] = order.Forward(spec.plan.Resolve(slice.first + i).position);
  }
  sample_ids_.resize(slice.count);
  for (std::uint64_t i = 0; i < slice.count; ++i) {
    sample_ids_[i] = spec.selection->At(indices_[i]).value();
  }
  return PlanSamples(spec, {.samples = sample_ids_,
                            .epoch = name.epoch,
                            .end_position = slice.first + slice.count,
                            .packed = std::move(packed)});
}

Result<AssembledBatch> Gatherer::Assemble(const StreamSpec& spec, const GatherMeans& means) {
  AssembledBatch batch;
  batch.name = name_;
  batch.first_position = first_position_;
  batch.padded_count = padded_count_;
  FOREBAY_TRY(Gather(spec, means, batch));
  batch.sample_ids = sample_ids_;
  return batch;
}

}  // namespace forebay::stream
