// BatchPlan: which samples a batch has. It follows from the batch's name, by the order and the
// selection of its stream.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/result.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

struct BatchPlan {
  BatchName name;
  std::uint64_t first_position = 0;    // in the order of the epoch
  std::uint32_t padded_count = 0;      // the last so many samples repeat others
  std::vector<std::uint64_t> samples;  // of the data set, in the order of the batch's rows

  std::uint64_t end_position() const { return first_position + samples.size(); }
};

// `order` is that of the epoch. kOutOfRange: there is no such batch.
Result<BatchPlan> PlanBatch(const StreamSpec& spec, const Order& order, const BatchName& name);

}  // namespace forebay::stream
