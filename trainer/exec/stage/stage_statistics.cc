// One float array has room for all micro-batches of the step. A replica fills its own part of it,
// and the gather fills the rest with what the other replicas recorded.
#include "trainer/exec/stage/stage_statistics.h"

#include <cstddef>
#include <utility>

namespace forebay::train {
namespace {

std::vector<std::shared_ptr<Part>> PartsOf(const std::vector<HeldPart*>& held) {
  std::vector<std::shared_ptr<Part>> parts;
  for (const HeldPart* part : held) parts.push_back(part->part());
  return parts;
}

}  // namespace

StageStatistics::StageStatistics(const StepPlan& plan, const std::vector<HeldPart*>& parts)
    : plan_(plan), layers_(PartsOf(parts)) {}

// The room keeps its size from step to step, so nothing is allocated.
void StageStatistics::BeginStep() {
  all_.assign(layers_.floats() * plan_.micro_batches, 0.0F);
}

std::span<float> StageStatistics::RoomOf(std::uint32_t micro_batch) {
  return std::span(all_).subspan(layers_.floats() * micro_batch, layers_.floats());
}

void StageStatistics::Begin(std::uint32_t micro_batch) {
  if (!layers_.empty()) layers_.Begin(RoomOf(micro_batch));
}

std::unique_ptr<PendingCollective> StageStatistics::Gather(Members members,
                                                           const CollectiveTag& tag) {
  // A copy: the gather writes all of all_, this replica's part among it.
  const std::size_t share = layers_.floats() * plan_.MicroBatchesPerReplica();
  const auto own = std::span(all_).subspan(members.self * share, share);
  own_.assign(own.begin(), own.end());
  return std::make_unique<AllGather>(std::move(members), tag, std::as_bytes(std::span(own_)),
                                     std::as_writable_bytes(std::span(all_)));
}

// In ascending order of micro-batches, because running statistics are not a sum: a later one
// counts for more.
void StageStatistics::Apply(std::uint32_t micro_batches) {
  if (layers_.empty()) return;
  for (std::uint32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    layers_.Apply(RoomOf(micro_batch));
  }
}

}  // namespace forebay::train
