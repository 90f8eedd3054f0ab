// Batch::State: what a Batch refers to. Filled by the decoder, then immutable while shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/connection/region_map.h"
#include "client/stream/stream_schema.h"
#include "forebay/batch.h"
#include "proto/contract/ids.h"
#include "proto/contract/order_token.h"

namespace forebay {

// States are pooled: the vectors keep their capacity from batch to batch, so that decoding a
// batch allocates nothing once the stream is warm.
class Batch::State {
 public:
  struct Field {
    const std::byte* tensor = nullptr;  // null unless the field came as one tensor
    std::uint64_t tensor_bytes = 0;
    std::size_t bounds_begin = 0;     // into span_bounds: sample i has [b + i], [b + i + 1]
    std::size_t constants_begin = 0;  // into constants, sample_count of them, where has_constants
    bool has_constants = false;
  };

  // The name it was asked by.
  EpochId epoch;
  StepId step;
  std::uint32_t micro_size = 0;
  std::uint32_t micro_index = 0;

  std::uint64_t wire_id = 0;      // to release; 0: the daemon holds nothing
  std::uint64_t call_number = 0;  // the call it arrived on
  std::uint64_t first_position = 0;
  std::uint32_t sample_count = 0;
  std::uint32_t padded_count = 0;
  std::uint64_t payload_bytes = 0;
  PositionToken token;
  bool is_of_other_node = false;  // another node's daemon has sent it

  std::vector<SampleId> sample_ids;
  std::vector<Field> fields;
  std::vector<std::span<const std::byte>> spans;  // of all fields and samples
  std::vector<std::uint32_t> span_bounds;         // into spans
  std::vector<std::int64_t> constants;
  std::vector<std::byte> transformed;
  std::vector<std::byte> inline_payload;  // what did not come through shared memory

  std::shared_ptr<const internal::StreamSchema> schema;
  std::shared_ptr<const internal::RegionMap> regions;  // keeps the memory mapped

  std::span<const std::span<const std::byte>> SpansOf(const Field& field,
                                                      std::uint32_t sample) const {
    const std::uint32_t begin = span_bounds[field.bounds_begin + sample];
    const std::uint32_t end = span_bounds[field.bounds_begin + sample + 1];
    return std::span(spans).subspan(begin, end - begin);
  }

  // Forgets a former batch's content but keeps the capacity.
  void Clear() {
    sample_ids.clear();
    fields.clear();
    spans.clear();
    span_bounds.clear();
    constants.clear();
    transformed.clear();
    inline_payload.clear();
    payload_bytes = 0;
  }
};

}  // namespace forebay
