#include "server/stream/batch_assembler.h"

#include <algorithm>

namespace forebay::stream {

Status BatchAssembler::Plan(const StreamSpec& spec, const Order& order, const BatchName& name,
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
  samples_.resize(slice.count);
  for (std::uint64_t i = 0; i < slice.count; ++i) {
    samples_[i] = spec.selection->At(indices_[i]).value();
  }
  gatherer_ = spec.is_packed() ? static_cast<Gatherer*>(&packed_) : &raw_;
  return gatherer_->Plan(spec, {.samples = samples_,
                                .epoch = name.epoch,
                                .end_position = slice.first + slice.count,
                                .all_extents = packed.all_extents,
                                .open = std::move(packed.open),
                                .others = packed.others});
}

Result<AssembledBatch> BatchAssembler::Assemble(const StreamSpec& spec,
                                                const GatherMeans& means) {
  AssembledBatch batch;
  batch.name = name_;
  batch.first_position = first_position_;
  batch.padded_count = padded_count_;
  FOREBAY_TRY(gatherer_->Gather(spec, means, batch));
  batch.sample_ids = samples_;
  return batch;
}

}  // namespace forebay::stream
