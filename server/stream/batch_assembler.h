// BatchAssembler: turns a batch's name into bytes in memory, in two steps, because extents may have
// to be fetched from the GFS between them. Plan returns the extents that the batch needs; Assemble
// makes the batch when they are pinned.
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
  // By index of the planned extents: true if other batches pin it, so another pin costs nothing.
  // Empty: all false.
  std::vector<bool> pinned_already;
};

// State and buffers of one assembly at a time; reusable for the next batch. Not thread-safe.
class BatchAssembler {
 public:
  // `decoded` is borrowed: the decoded chunks of packed data sets.
  explicit BatchAssembler(fetch::DecodedCache& decoded) : packed_(decoded) {}

  // Resolves the batch's samples; extents() then lists the extents that are needed, each once. For
  // a packed data set they depend on which chunks are decoded now, so the next Plan may list
  // others; with `all_extents` it lists the extents of all chunks. `open` is for packed data sets,
  // and must stay valid until Forget.
  Status Plan(const StreamSpec& spec, const Order& order, const BatchName& name,
              bool all_extents = false, OpenSlots open = {});
  // The values that were decoded for a batch that then found no slot memory, for its next attempt;
  // may be empty. See PackedGather.
  GatheredValues TakeGathered() { return packed_.TakeGathered(); }
  void GiveGathered(GatheredValues gathered) { packed_.GiveGathered(std::move(gathered)); }
  // Releases the decoded chunks and slots that a plan holds.
  void Forget() { packed_.Forget(); }
  std::span<const ExtentId> extents() const {
    return is_packed_ ? packed_.extents() : std::span<const ExtentId>(extents_);
  }

  // Assembles the batch. `refs` are the planned extents, in order. `slots` provides memory for
  // samples that must be copied or read; kResourceExhausted: it has none now, repeat the call
  // later. kDataLoss with copies in `bad`: they could not be read or did not match their checksums;
  // report them (Fetcher::ReportBad) and repeat. kUnavailable: the GFS failed to read pieces.
  Result<AssembledBatch> Assemble(const StreamSpec& spec, const AssembleLimits& limits,
                                  std::vector<tier::ExtentRef> refs, tier::RamArena& slots,
                                  io::IoQueue& queue, std::vector<BadExtent>& bad);

 private:
  // A piece of one sample: its place in the extent, and its bytes in memory.
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
