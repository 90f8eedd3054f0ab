// BatchAssembler: turns a batch's name into bytes in memory, in two steps, because extents may have
// to be fetched from the GFS between them. Plan returns the extents that the batch needs; Assemble
// makes the batch when they are pinned.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/result.h"
#include "server/fetch/decoded_cache.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/gatherer.h"
#include "server/stream/packed/packed_gatherer.h"
#include "server/stream/raw_gatherer.h"

namespace forebay::stream {

// What a batch of a packed data set is planned with; valid until BatchAssembler::Forget.
struct PackedPlan {
  bool all_extents = false;  // list those of chunks that are decoded already, too
  OpenSlots open = {};
  OtherNodes others = {};
};

// State and buffers of one assembly at a time; reusable for the next batch, of any stream. Not
// thread-safe.
class BatchAssembler {
 public:
  // `decoded` is borrowed: the decoded chunks of packed data sets.
  explicit BatchAssembler(fetch::DecodedCache& decoded) : packed_(decoded) {}
  BatchAssembler(const BatchAssembler&) = delete;
  BatchAssembler& operator=(const BatchAssembler&) = delete;

  // Resolves the batch's samples; extents() then lists the extents that are needed, each once. For
  // a packed data set they depend on which chunks are decoded now, so the next Plan may list
  // others.
  Status Plan(const StreamSpec& spec, const Order& order, const BatchName& name,
              PackedPlan packed);
  std::span<const ExtentId> extents() const { return gatherer_->extents(); }
  // The chunks of other nodes that are needed before that; see Gatherer.
  std::span<const fetch::WantedRemote> missing_chunks() const {
    return gatherer_->missing_chunks();
  }

  // Assembles the batch. Errors are those of Gatherer::Gather.
  Result<AssembledBatch> Assemble(const StreamSpec& spec, const GatherMeans& means);

  // See Gatherer.
  GatheredValues TakeGathered() { return gatherer_->TakeGathered(); }
  void GiveGathered(GatheredValues gathered) { gatherer_->GiveGathered(std::move(gathered)); }
  void Forget() { gatherer_->Forget(); }

 private:
  RawGatherer raw_;
  PackedGatherer packed_;
  Gatherer* gatherer_ = &raw_;  // the planned batch's
  BatchName name_;
  std::uint64_t first_position_ = 0;
  std::uint32_t padded_count_ = 0;
  std::vector<std::uint64_t> indices_;
  std::vector<std::uint64_t> samples_;
};

}  // namespace forebay::stream
