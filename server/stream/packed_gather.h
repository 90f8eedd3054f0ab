// PackedGather: puts a batch of a packed data set together. Chunks are read from where their
// extents lie and decoded: samples that no one will need again soon straight into the slot, or the
// slot of another batch on its way; others to memory that is kept, from where this batch and later
// ones copy them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compress/decode/chunk_record.h"
#include "proto/contract/result.h"
#include "server/fetch/decoded_cache.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/chunk_reader.h"
#include "server/stream/gather_plan.h"
#include "server/stream/slot_board.h"

namespace forebay::stream {

// Where a row's value of a variable field lies in GatheredValues::bytes.
struct GatheredValue {
  std::uint64_t offset = 0, length = 0;
};

// The variable values of a batch that found no slot: known by then, and not decoded again when it
// is tried again.
struct GatheredValues {
  std::vector<std::vector<GatheredValue>> values;  // [field][row]; of fixed fields empty
  std::vector<std::byte> bytes;
  AssembledBatch counted;     // what they took, and nothing else
  bool is_complete = false;
};

// One batch at a time; keeps its buffers between batches: what one wave of SSD reads takes
// (limits::kDecodeReadBytesMax), twice, one decoder's scratch, and the variable values of a batch.
// Not thread-safe.
class PackedGather {
 public:
  explicit PackedGather(fetch::DecodedCache& decoded) : decoded_(decoded) {}

  // The units of a batch; extents() then lists, each once, where the chunks lie that have to be
  // decoded. `open` is good until Forget.
  void Plan(const StreamSpec& spec, GatherWanted wanted, OpenSlots open);
  // Lets go of decoded units that the plan took, and of the slot.
  void Forget();
  std::span<const ExtentId> extents() const { return plan_.extents(); }

  // What Fill has decoded of variable fields, after it found no slot memory, and what it then
  // takes instead of decoding it, for the batch with the same rows.
  GatheredValues TakeGathered() { return std::exchange(gathered_, {}); }
  void GiveGathered(GatheredValues gathered) { gathered_ = std::move(gathered); }

  using Means = PackedMeans;
  // Fills batch.fields, all in one slot. kResourceExhausted where slot memory is short: worth
  // repeating later. kDataLoss, with `bad`: worth repeating once they were fetched anew.
  Status Fill(const StreamSpec& spec, const Means& means, AssembledBatch& batch);

 private:
  Status TakeSlot(const StreamSpec& spec, const Means& means);
  Status Gather(const Means& means, AssembledBatch& batch);
  Status FillField(std::uint32_t field, const Means& means, AssembledBatch& batch);
  Result<std::size_t> ReadAhead(std::span<const GatherUnit> units, const Means& means,
                                AssembledBatch& batch);
  Status FillUnit(GatherUnit& unit, const Means& means, AssembledBatch& batch);
  bool ClaimRows(GatherUnit& unit, AssembledBatch& batch);
  void SettleRows(const GatherUnit& unit, bool are_filled);
  Status FillClaimed(GatherUnit& unit, const Means& means, AssembledBatch& batch);
  std::uint64_t RowBytes(const GatherUnit& unit) const {
    return slot_->layout().row_bytes[unit.field];
  }
  std::span<std::byte> RowOf(const GatherUnit& unit, const GatherUser& user) const;
  void CopyRows(const GatherUnit& unit);
  void CopyToRow(const GatherUnit& unit, const GatherUser& user,
                 std::span<const std::byte> value) const;
  Status DecodeRows(GatherUnit& unit, const Means& means, AssembledBatch& batch);
  void PlaceSamples(const GatherUnit& unit, const compress::ChunkRecord& record,
                    const Means& means, fetch::DecodedUnit& decoded,
                    std::vector<RowClaim>& claims);
  bool GoesToPlaces(const GatherUnit& unit, const compress::ChunkRecord& record) const;
  bool WouldLast(const GatherUnit& unit, std::uint32_t index, std::uint64_t after) const;
  void PlaceAhead(const GatherUnit& unit, const Means& means, std::vector<RowClaim>& claims);
  Status PlaceValues(const GatherUnit& unit, const compress::ChunkEntry& entry,
                     const compress::ChunkRecord& record, fetch::DecodedUnit& decoded) const;
  Result<fetch::DecodedUnit> DecodeUnit(GatherUnit& unit, const Means& means,
                                        AssembledBatch& batch);
  Status TakeValues(const GatherUnit& unit, const fetch::DecodedUnit& decoded);
  std::span<std::byte> ScratchFor(const PlacedChunk& chunk);
  void Describe(const StreamSpec& spec, AssembledBatch& batch) const;

  fetch::DecodedCache& decoded_;
  GatherPlan plan_;

  OpenSlots open_;
  std::shared_ptr<BatchSlot> slot_;  // of the batch being filled
  GatheredValues gathered_;
  std::vector<WantedRow> ahead_;
  std::vector<std::span<std::byte>> places_;        // where a unit's samples are decoded to
  ChunkReader reader_;
  fetch::RawBytes scratch_;
};

}  // namespace forebay::stream
