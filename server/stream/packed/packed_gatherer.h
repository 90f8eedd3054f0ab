// PackedGatherer: puts a batch of a packed data set together. Chunks are read from where their
// extents lie and decoded: samples that no one will need again soon straight into the slot, or the
// slot of another batch on its way; others to memory that is kept, from where this batch and later
// ones copy them. Chunks that other nodes have sent are decoded likewise. Samples that another node
// is to decode get their place in the slot, and are filled later.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compress/decode/pack/chunk_record.h"
#include "proto/contract/result.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/packed/chunk_reader.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/gatherer.h"
#include "server/stream/packed/gather_plan.h"
#include "server/stream/packed/slot_board.h"

namespace forebay::stream {

// Keeps its buffers between batches: what SSD reads at a time take, twice
// (limits::kDecodeReadBytesMax), one decoder's scratch, and the variable values of a batch.
class PackedGatherer final : public Gatherer {
 public:
  // `decoded` is borrowed: the decoded chunks of packed data sets.
  explicit PackedGatherer(fetch::DecodedCache& decoded) : decoded_(decoded) {}

  Status Plan(const StreamSpec& spec, const BatchPlan& batch, PackedPlan packed) override;
  std::span<const ExtentId> extents() const override { return plan_.extents(); }
  std::span<const fetch::WantedRemote> missing_chunks() const override {
    return plan_.missing_chunks();
  }
  Status Gather(const StreamSpec& spec, const GatherMeans& means, AssembledBatch& batch) override;
  GatheredValues TakeGathered() override { return std::exchange(gathered_, {}); }
  void GiveGathered(GatheredValues gathered) override { gathered_ = std::move(gathered); }
  // Lets go of decoded units that the plan took, and of the slot.
  void Forget() override;

 private:
  Status TakeSlot(const StreamSpec& spec, const GatherMeans& means);
  Status GatherVariable(const GatherMeans& means, AssembledBatch& batch);
  Status FillField(std::uint32_t field, const GatherMeans& means, AssembledBatch& batch);
  Result<std::size_t> ReadAhead(std::span<const GatherUnit> units, const GatherMeans& means,
                                AssembledBatch& batch);
  void RouteRows(const GatherMeans& means, AssembledBatch& batch);
  void CountSent(AssembledBatch& batch) const;
  Status FillUnit(GatherUnit& unit, const GatherMeans& means, AssembledBatch& batch);
  bool ClaimRows(GatherUnit& unit, AssembledBatch& batch);
  void EndClaims(const GatherUnit& unit, bool are_filled);
  Status FillClaimed(GatherUnit& unit, const GatherMeans& means, AssembledBatch& batch);
  std::uint64_t RowBytes(const GatherUnit& unit) const {
    return slot_->layout().row_bytes[unit.field];
  }
  std::span<std::byte> RowOf(const GatherUnit& unit, const GatherUser& user) const;
  void CopyRows(const GatherUnit& unit);
  void CopyToRow(const GatherUnit& unit, const GatherUser& user,
                 std::span<const std::byte> value) const;
  Status DecodeRows(GatherUnit& unit, const GatherMeans& means, AssembledBatch& batch);
  void PlaceSamples(const GatherUnit& unit, const compress::ChunkRecord& record,
                    const GatherMeans& means, fetch::DecodedUnit& decoded,
                    std::vector<RowClaim>& claims);
  bool GoesToPlaces(const GatherUnit& unit, const compress::ChunkRecord& record) const;
  bool WouldLast(const GatherUnit& unit, std::uint32_t index, std::uint64_t after) const;
  void PlaceAhead(const GatherUnit& unit, const GatherMeans& means, std::vector<RowClaim>& claims);
  Status PlaceValues(const GatherUnit& unit, const compress::ChunkEntry& entry,
                     const compress::ChunkRecord& record, fetch::DecodedUnit& decoded) const;
  Result<fetch::DecodedUnit> DecodeUnit(GatherUnit& unit, const GatherMeans& means,
                                        AssembledBatch& batch);
  Status TakeValues(const GatherUnit& unit, const fetch::DecodedUnit& decoded);
  std::span<std::byte> ScratchFor(const fetch::PlacedChunk& chunk);
  void Describe(const StreamSpec& spec, AssembledBatch& batch) const;

  fetch::DecodedCache& decoded_;
  GatherPlan plan_;

  OpenSlots open_;
  std::shared_ptr<BatchSlot> slot_;  // of the batch being filled
  GatheredValues gathered_;
  std::vector<WantedRow> ahead_;
  std::vector<std::span<std::byte>> places_;        // where a unit's samples are decoded to
  fetch::ChunkReader reader_;
  fetch::RawBytes scratch_;
};

}  // namespace forebay::stream
