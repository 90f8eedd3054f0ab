#include "server/catalog/pack/pack_cut.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "proto/contract/limits.h"

namespace forebay::catalog {
namespace {

using compress::ChunkEntry;

std::uint64_t EndOf(const ChunkEntry& chunk) {
  return chunk.offset + chunk.head_bytes + chunk.payload_bytes;
}

// How far each field has come, as a file is walked in order of offsets.
class FieldFronts {
 public:
  explicit FieldFronts(const compress::PackSchema& schema) {
    for (const compress::PackField& field : schema.fields) tiles_.push_back(field.tiles());
    fronts_.resize(tiles_.size(), 0);
  }

  void Pass(const ChunkEntry& chunk) {
    const bool ends_run =
        chunk.sample_bytes != 0
            ? chunk.sample_bytes - chunk.part_offset <= limits::kChunkBytesMax
            : chunk.tile + 1 == tiles_[chunk.field];
    fronts_[chunk.field] = ends_run ? chunk.first_sample + chunk.sample_count : kWithin;
  }

  bool Meet() const {
    return fronts_[0] != kWithin &&
           std::all_of(fronts_.begin(), fronts_.end(),
                       [&](std::uint64_t front) { return front == fronts_[0]; });
  }

 private:
  static constexpr std::uint64_t kWithin = ~std::uint64_t{0};  // a run of samples

  std::vector<std::uint32_t> tiles_;
  std::vector<std::uint64_t> fronts_;  // the sample before which a field is complete
};

Status CheckOrder(std::span<const ChunkEntry> chunks, std::span<const std::uint32_t> order) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::uint64_t end = EndOf(chunks[order[i - 1]]);
    if (chunks[order[i]].offset >= end) continue;
    return Error(ErrorCode::kDataLoss, "pack: the chunk at byte " +
                                           std::to_string(chunks[order[i]].offset) +
                                           " overlaps the one before, which ends at " +
                                           std::to_string(end));
  }
  return {};
}

// Cuts one extent after the other.
class Cutter {
 public:
  Cutter(const compress::PackSchema& schema, std::span<const ChunkEntry> chunks,
         std::span<const std::uint32_t> order, std::uint64_t extent_bytes)
      : chunks_(chunks), order_(order), extent_bytes_(extent_bytes), fronts_(schema) {}

  bool Done() const { return next_ == order_.size(); }

  PackExtent Next() {
    PackExtent extent;       // up to the last chunk that fits
    PackExtent meeting;      // up to the last chunk behind which all fields meet
    FieldFronts met = fronts_;
    extent.offset = chunks_[order_[next_]].offset;
    std::size_t at = next_;
    while (at < order_.size() && Take(chunks_[order_[at]], extent)) {
      fronts_.Pass(chunks_[order_[at++]]);
      if (!fronts_.Meet()) continue;
      meeting = extent;
      met = fronts_;
    }
    const std::uint64_t lost = extent.bytes - meeting.bytes;
    if (at < order_.size() && meeting.chunk_count > 0 && lost < extent_bytes_ / 8) {
      extent = meeting;
      fronts_ = met;
    }
    next_ += extent.chunk_count;
    return extent;
  }

 private:
  // Adds the chunk where it fits; the first always does.
  bool Take(const ChunkEntry& chunk, PackExtent& extent) const {
    const std::uint64_t bytes = EndOf(chunk) - extent.offset;
    const bool is_first = extent.chunk_count == 0;
    const std::uint64_t begin =
        is_first ? chunk.first_sample : std::min(extent.first_sample, chunk.first_sample);
    const std::uint64_t end = std::max(is_first ? 0 : extent.first_sample + extent.sample_count,
                                       chunk.first_sample + chunk.sample_count);
    if (!is_first && (bytes > extent_bytes_ || end - begin > limits::kSamplesPerExtentMax ||
                      extent.chunk_count == limits::kSamplesPerExtentMax)) {
      return false;
    }
    extent.bytes = static_cast<std::uint32_t>(bytes);
    extent.first_sample = begin;
    extent.sample_count = static_cast<std::uint32_t>(end - begin);
    ++extent.chunk_count;
    return true;
  }

  const std::span<const ChunkEntry> chunks_;
  const std::span<const std::uint32_t> order_;
  const std::uint64_t extent_bytes_;
  FieldFronts fronts_;
  std::size_t next_ = 0;
};

}  // namespace

Result<PackCut> CutPack(const compress::PackSchema& schema, std::span<const ChunkEntry> chunks,
                        std::uint64_t extent_bytes) {
  PackCut cut;
  cut.order.resize(chunks.size());
  std::iota(cut.order.begin(), cut.order.end(), 0U);
  std::sort(cut.order.begin(), cut.order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return chunks[a].offset < chunks[b].offset;
  });
  FOREBAY_TRY(CheckOrder(chunks, cut.order));
  Cutter cutter(schema, chunks, cut.order, extent_bytes);
  while (!cutter.Done()) cut.extents.push_back(cutter.Next());
  return cut;
}

}  // namespace forebay::catalog
