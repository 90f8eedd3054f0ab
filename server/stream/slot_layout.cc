// Computes where each field of a batch begins in its slot. The daemon calls it for every batch that
// is copied to a slot, from the worker that assembles the batch. All sums are compared with
// kSlotBytesMax before they are made, so no count from a catalog or a client makes them wrap
// around.
#include "server/stream/slot_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "proto/contract/align_up.h"
#include "proto/contract/limits.h"

namespace forebay::stream {

Result<SlotLayout> LayOutRows(std::span<const FieldSpec> fields, std::size_t rows,
                              std::span<const std::uint64_t> variable_bytes) {
  SlotLayout layout;
  std::uint64_t total = 0;
  bool fits = true;
  for (std::size_t field = 0; field < fields.size(); ++field) {
    const FieldSpec& words = fields[field];
    layout.row_bytes.push_back(0);
    // Constants travel in the batch's message, as one number a sample. Both lists still get an
    // entry, so that the number of a field is its index.
    if (words.source == FieldSource::kConstant) {
      layout.begins.push_back(0);
      continue;
    }
    total = AlignUp(total, kRowAlignment);
    layout.begins.push_back(total);
    std::uint64_t bytes = field < variable_bytes.size() ? variable_bytes[field] : 0;
    if (words.is_fixed()) {
      FOREBAY_ASSIGN(const std::uint64_t row, words.BytesPerSample());
      // A division, because `row * rows` may not fit in 64 bits.
      fits = fits && row <= limits::kSlotBytesMax / std::max<std::size_t>(rows, 1);
      if (fits) bytes = row * rows;
      layout.row_bytes.back() = row;
    }
    // Alignment may have taken `total` beyond the limit; the difference must not become negative.
    fits = fits && bytes <= limits::kSlotBytesMax - std::min(total, limits::kSlotBytesMax);
    if (!fits) {
      return Error(ErrorCode::kOutOfRange,
                   fmt::format("a batch of {} samples exceeds kSlotBytesMax ({} bytes)", rows,
                               limits::kSlotBytesMax));
    }
    total += bytes;
  }
  layout.total_bytes = total;
  return layout;
}

}  // namespace forebay::stream
