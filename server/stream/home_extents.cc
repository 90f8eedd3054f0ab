// Without an exchange (q = 0) an epoch of mode partial gives each rank its home shares and nothing
// else, so the extents are found with the order function itself. Home shares consist of runs of
// neighbours, so some samples of each run are enough.
#include "server/stream/home_extents.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "proto/contract/order.h"

namespace forebay::stream {
namespace {

constexpr std::uint64_t kExaminedMax = 65'536;  // samples; some 20 ms

}  // namespace

std::vector<ExtentId> HomeExtents(const StreamSpec& spec) {
  const catalog::SampleTable* const table = spec.catalog->samples();
  if (spec.order.shape.mode != OrderMode::kPartial || table == nullptr) return {};
  OrderSpec homes = spec.order;
  homes.first_epoch_shape.reset();
  homes.shape.exchange_millionths = 0;
  const Order order(homes, EpochId(0));
  // Full steps only: in a short last one the parts are smaller.
  const std::uint64_t batch = spec.plan.global_batch();
  const std::uint64_t part = batch / spec.plan.ranks();
  const std::uint64_t samples = order.sample_count() / batch * part;
  const std::uint64_t examined = std::min(samples, kExaminedMax);
  std::vector<catalog::FieldLocation> fields(spec.catalog->fields().size());
  std::unordered_map<std::uint32_t, std::uint64_t> counts;
  for (std::uint64_t i = 0; i < examined; ++i) {
    // By a fraction: the product of two large numbers may not fit in 64 bits.
    const auto at = static_cast<std::uint64_t>(static_cast<double>(i) /
                                               static_cast<double>(examined) *
                                               static_cast<double>(samples));
    const Position position(at / part * batch + spec.rank * part + at % part);
    const SampleId sample = spec.selection->At(order.Forward(position));
    // A damaged page is an error of the batch that needs it, not of this choice.
    if (!table->Locate(sample, fields).has_value()) continue;
    for (const catalog::FieldLocation& field : fields) {
      if (field.present && field.range.length > 0) ++counts[field.range.extent.value()];
    }
  }
  std::vector<std::pair<std::uint64_t, std::uint32_t>> ranked;
  for (const auto& [extent, count] : counts) ranked.emplace_back(count, extent);
  std::ranges::sort(ranked, std::greater());
  std::vector<ExtentId> extents;
  for (const auto& [count, extent] : ranked) extents.emplace_back(extent);
  return extents;
}

}  // namespace forebay::stream
