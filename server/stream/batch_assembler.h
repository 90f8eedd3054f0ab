// BatchAssembler: from a batch's name to bytes in place (design 5). Two steps, because between
// them extents may have to come from the GFS: Plan says which extents, Assemble puts the batch
// together once they are pinned.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/result.h"
#include "server/fetch/piece_reader.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/bad_extent.h"
#include "server/stream/packed_gather.h"
#include "server/stream/slot_board.h"

namespace forebay::stream {

struct AssembleLimits {
  // Views may pin this many bytes of extents in this call; samples of further extents are
  // copied to the slot.
  std::uint64_t pin_bytes = ~std::uint64_t{0};
  // Of the planned extents, by index: pinned by other batches, so another pin costs nothing.
  // Empty: none is.
  std::vector<bool> pinned_already;
};

// Reusable scratch of one assembly at a time; keeps its buffers between batches. Not
// thread-safe.
class BatchAssembler {
 public:
  // `decoded` is borrowed: what packed data sets decode to.
  explicit BatchAssembler(fetch::DecodedCache& decoded) : packed_(decoded) {}

  // Resolves the batch's samples; extents() then lists what is needed, each once. Of a packed
  // data set that may be less the next time, or more: it depends on what is decoded already.
  // With `all_extents` it does not. `open` is for packed data sets, and good until Forget.
  Status Plan(const StreamSpec& spec, const Order& order, const BatchName& name,
              bool all_extents = false, OpenSlots open = {});
  // What was decoded for a batch that then found no slot memory, for its next attempt; empty
  // where nothing was. PackedGather says more.
  GatheredValues TakeGathered() { return packed_.TakeGathered(); }
  void GiveGathered(GatheredValues gathered) { packed_.GiveGathered(std::move(gathered)); }
  // Lets go of what a plan holds of the decoded cache, and of slots.
  void Forget() { packed_.Forget(); }
  std::span<const ExtentId> extents() const {
    return is_packed_ ? packed_.extents() : std::span<const ExtentId>(extents_);
  }

  // Puts the batch together. `refs` are the planned extents, in order. `slots` gives memory for
  // what must be copied or read: kResourceExhausted where it has none now, and the call may be
  // repeated later. `bad` receives extents whose SSD bytes did not match: kDataLoss then, and
  // the call is worth repeating after they were fetched anew.
  Result<AssembledBatch> Assemble(const StreamSpec& spec, const AssembleLimits& limits,
                                  std::vector<tier::ExtentRef> refs, tier::RamArena& slots,
                                  io::IoQueue& queue, std::vector<BadExtent>& bad);

 private:
  // A piece of one sample: where it is on the tier, and where its bytes are in memory.
  struct Piece {
    std::uint32_t extent_index = 0;  // in extents_
    std::uint32_t offset = 0;        // within the extent's image
    std::uint64_t length = 0;
    std::uint32_t checksum_index = 0;
    std::uint32_t region = 0;        // set by Materialise
    std::uint64_t region_offset = 0;
    const std::byte* bytes = nullptr;
  };

  std::uint32_t IndexOf(ExtentId extent);
  Status PlanSample(const StreamSpec& spec, SampleId sample);
  void ChoosePins(const AssembleLimits& limits, std::span<const tier::ExtentRef> refs);
  Status Materialise(const StreamSpec& spec, const AssembleLimits& limits,
                     std::span<const tier::ExtentRef> refs, tier::RamArena& slots,
                     io::IoQueue& queue, AssembledBatch& batch,
                     std::vector<BadExtent>& bad);
  Status ReadPieces(std::span<const tier::ExtentRef> refs, io::IoQueue& queue,
                     std::vector<BadExtent>& bad);
  template <typename Visit>
  void ForEachRun(std::size_t sample, std::size_t field, Visit&& visit) const;
  Status FillViews(const StreamSpec& spec, AssembledBatch& batch) const;
  std::vector<std::uint64_t> VariableBytes(const StreamSpec& spec) const;
  void FillConstants(std::size_t field, AssembledField& out) const;
  Status FillContiguous(const StreamSpec& spec, tier::RamArena& slots, AssembledBatch& batch);

  PackedGather packed_;
  bool is_packed_ = false;
  std::vector<bool> pins_;  // of extents_: views may point into it
  BatchName name_;
  std::uint64_t first_position_ = 0;
  std::uint32_t padded_count_ = 0;
  std::size_t field_count_ = 0;
  std::size_t part_count_ = 0;
  std::vector<std::uint64_t> indices_;
  std::vector<std::uint64_t> samples_;
  std::vector<catalog::FieldLocation> locations_;  // sample-major, field_count_ each
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> piece_begin_;         // sample x part -> first piece; one more at end
  std::vector<ExtentId> extents_;
  std::unordered_map<ExtentId, std::uint32_t, IdHash> extent_index_;
  std::vector<fetch::PieceRead> reads_;
  std::vector<std::size_t> read_pieces_;           // reads_[i] fills pieces_[read_pieces_[i]]
  std::vector<fetch::PieceFailure> failures_;
};

}  // namespace forebay::stream
