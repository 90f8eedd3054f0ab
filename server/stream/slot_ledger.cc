// The ledger only counts; the memory itself is in the arena, and SlotQueue calls the ledger under
// its lock before and after memory is taken there. The invariant: promised bytes + the
// largest scratch of any stream + excess <= capacity, so that one batch with scratch can always be
// assembled. Scratch beyond the largest comes from what is free at the moment.
#include "server/stream/slot_ledger.h"

#include <algorithm>

#include <fmt/format.h>

#include "proto/contract/align_up.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::stream {
namespace {

constexpr std::uint64_t kPage = limits::kIoAlignmentBytes;
constexpr std::uint64_t kFieldPaddingBytes = 64;  // fields of a tensor begin at cache lines

std::uint64_t Pages(std::uint64_t bytes) { return AlignUp(bytes, kPage); }

// The need of a stream with fields of variable size, whose largest batch is unknown. Views of
// extents in RAM take no slots at all.
SlotNeed AverageNeed(const StreamSpec& spec) {
  const bool is_copied =
      spec.delivery == Delivery::kContiguous || spec.inline_payload || spec.is_packed();
  if (!is_copied || spec.catalog->sample_count() == 0) return {};
  const std::uint64_t samples = spec.plan.global_batch() / spec.plan.ranks();
  // In floating point: a catalog's total times the samples of a batch may not fit in 64 bits.
  const double sample_bytes = static_cast<double>(spec.catalog->total_bytes()) /
                              static_cast<double>(spec.catalog->sample_count());
  return {.held_bytes = Pages(static_cast<std::uint64_t>(sample_bytes *
                                                         static_cast<double>(samples))),
          .scratch_bytes = 0};
}

}  // namespace

SlotNeed SlotNeedOf(const StreamSpec& spec, const SlotPolicy& policy) {
  if (spec.batch_bytes_max == 0) return AverageNeed(spec);
  // LayOutRows rounds the beginning of each field up to a cache line.
  const std::uint64_t padding = spec.catalog->fields().size() * kFieldPaddingBytes;
  if (spec.is_packed()) {
    // Decoded samples are copied to a slot, also as views; chunks are read to other memory.
    return {.held_bytes = Pages(spec.batch_bytes_max + padding), .scratch_bytes = 0};
  }
  const std::uint64_t samples = spec.plan.global_batch() / spec.plan.ranks();
  const std::uint64_t extent_bytes =
      std::max<std::uint64_t>(1, spec.dataset->options().source.extent_bytes);
  // A sample has a piece per part, and more where it spans extents. Each is read at page
  // alignment, which adds less than a page at either end.
  const std::uint64_t pieces =
      samples * spec.catalog->part_count() + 2 * spec.batch_bytes_max / extent_bytes;
  const std::uint64_t read_bytes = Pages(spec.batch_bytes_max + pieces * 2 * kPage);
  // Pieces from SSD are read to scratch and gathered into rows; the reader then keeps the rows
  // only.
  if (spec.delivery == Delivery::kContiguous || spec.inline_payload) {
    return {.held_bytes = Pages(spec.batch_bytes_max + padding),
            .scratch_bytes = policy.has_ssd ? read_bytes : 0};
  }
  // Views take slots for what comes from SSD or other nodes, and for what they may not pin.
  const bool may_copy = policy.has_ssd || policy.has_other_nodes ||
                        spec.catalog->total_bytes() > policy.view_pin_bytes;
  return {.held_bytes = may_copy ? read_bytes : 0, .scratch_bytes = 0};
}

std::uint64_t SlotLedger::LargestScratch() const {
  return scratch_streams_.empty() ? 0 : scratch_streams_.rbegin()->first;
}

Status SlotLedger::Reserve(const SlotNeed& need, std::uint32_t batches) {
  // Both are bounded (kSlotBytesMax, kCreditsMax), so the product fits in 64 bits.
  const std::uint64_t wanted = need.held_bytes * batches;
  // Streams share this part: it is kept for one batch, whichever stream that is of.
  const std::uint64_t scratch = std::max(LargestScratch(), need.scratch_bytes);
  // What readers hold beyond their promises is not given back for a newcomer.
  const std::uint64_t taken = held_bytes_ + excess_bytes_;
  const bool fits = taken + scratch <= capacity_bytes_ &&
                    wanted <= capacity_bytes_ - taken - scratch;
  if (!fits && wanted + need.scratch_bytes > 0) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} bytes of slots are needed ({} batches of {} bytes), and {} to "
                             "read from SSD, but {} of {} are taken; raise slots.capacity, or "
                             "lower the prefetch depth or the batch",
                             wanted, batches, need.held_bytes, scratch, taken,
                             capacity_bytes_));
  }
  held_bytes_ += wanted;
  // A count by size, so that the largest is known again after a stream has closed.
  ++scratch_streams_[need.scratch_bytes];
  return {};
}

void SlotLedger::GiveBack(const SlotNeed& need, std::uint32_t batches) {
  held_bytes_ -= need.held_bytes * batches;
  const auto streams = scratch_streams_.find(need.scratch_bytes);
  FOREBAY_CHECK(streams != scratch_streams_.end());
  if (--streams->second == 0) scratch_streams_.erase(streams);
}

bool SlotLedger::TakeScratch(std::uint64_t bytes, bool alone) {
  // `alone`: the batch found no memory before, and is tried again while no other batch takes any.
  if (is_taken_alone_ || (alone && scratch_takers_ > 0)) return false;
  const std::uint64_t taken = held_bytes_ + scratch_bytes_ + excess_bytes_;
  const bool fits = taken <= capacity_bytes_ && bytes <= capacity_bytes_ - taken;
  // The first one's share is kept free by Reserve and TakeExcess.
  if (scratch_takers_ > 0 && !fits) return false;
  scratch_bytes_ += bytes;
  ++scratch_takers_;
  is_taken_alone_ = alone;
  return true;
}

void SlotLedger::EndScratch(std::uint64_t bytes, bool alone) {
  FOREBAY_CHECK(scratch_takers_ > 0 && scratch_bytes_ >= bytes);
  scratch_bytes_ -= bytes;
  --scratch_takers_;
  if (alone) is_taken_alone_ = false;
}

bool SlotLedger::HasExcess(std::uint64_t bytes, std::optional<std::uint64_t> of_stream) const {
  // Scratch is counted with at least the reserved part, even if nobody uses it at the moment.
  const std::uint64_t taken =
      held_bytes_ + std::max(LargestScratch(), scratch_bytes_) + excess_bytes_;
  if (taken > capacity_bytes_ || bytes > capacity_bytes_ - taken) return false;
  // Compared with what would be left after the batch, so the last bytes are never given to one
  // stream.
  const std::uint64_t left = capacity_bytes_ - taken - bytes;
  return !of_stream || *of_stream + bytes <= kExcessPerFree * left;
}

SlotLedger::Excess SlotLedger::TakeExcess(std::uint64_t bytes,
                                          std::optional<std::uint64_t> of_stream) {
  // Only promises count here. Excess comes back when readers release batches; promises stay.
  const std::uint64_t promised = held_bytes_ + LargestScratch();  // Reserve: within the capacity
  if (bytes > capacity_bytes_ - promised) return Excess::kNever;
  if (!HasExcess(bytes, of_stream)) return Excess::kNotNow;
  excess_bytes_ += bytes;
  return Excess::kTaken;
}

void SlotLedger::EndExcess(std::uint64_t bytes) {
  FOREBAY_CHECK(bytes <= excess_bytes_);
  excess_bytes_ -= bytes;
}

}  // namespace forebay::stream
