// A greedy cut: each extent takes chunks in the order of offsets while they fit. It then gives the
// last ones back to the next extent if that lets it end where all fields have reached the same
// sample: such an extent serves whole samples, and reading one sample needs fewer extents.
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

// The sample that each field has reached, as the chunks of a file are passed in the order of
// offsets.
class FieldProgress {
 public:
  explicit FieldProgress(const compress::PackSchema& schema) {
    for (const compress::PackField& field : schema.fields) tiles_.push_back(field.tiles());
    reached_.resize(tiles_.size(), 0);
  }

  void Pass(const ChunkEntry& chunk) {
    // A group of chunks is complete with its last tile, or with the last part of a long byte
    // string.
    const bool ends_group =
        chunk.sample_bytes != 0
            ? chunk.sample_bytes - chunk.part_offset <= limits::kChunkBytesMax
            : chunk.tile + 1 == tiles_[chunk.field];
    // A pack whose offsets do not follow the order of samples only loses good places to cut: its
    // extents still hold whole chunks.
    reached_[chunk.field] = ends_group ? chunk.first_sample + chunk.sample_count : kIncomplete;
  }

  bool AllAtOneSample() const {
    return reached_[0] != kIncomplete &&
           std::all_of(reached_.begin(), reached_.end(),
                       [&](std::uint64_t sample) { return sample == reached_[0]; });
  }

 private:
  static constexpr std::uint64_t kIncomplete = ~std::uint64_t{0};  // within a group of chunks

  std::vector<std::uint32_t> tiles_;
  std::vector<std::uint64_t> reached_;  // each field is complete for all samples before this one
};

// A forged index can claim overlapping records. Pieces must not overlap, because each has a
// checksum.
Status CheckOrder(std::span<const ChunkEntry> chunks, std::span<const std::uint32_t> order) {
  // Neighbours in the order of offsets are enough: if no two neighbours overlap, no two chunks do.
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::uint64_t end = EndOf(chunks[order[i - 1]]);
    if (chunks[order[i]].offset >= end) continue;
    return Error(ErrorCode::kDataLoss, "pack: the chunk at byte " +
                                           std::to_string(chunks[order[i]].offset) +
                                           " overlaps the chunk before it, which ends at byte " +
                                           std::to_string(end));
  }
  return {};
}

// Cuts one extent after another: call Next until Done.
class Cutter {
 public:
  Cutter(const compress::PackSchema& schema, std::span<const ChunkEntry> chunks,
         std::span<const std::uint32_t> order, std::uint64_t extent_bytes)
      : chunks_(chunks), order_(order), extent_bytes_(extent_bytes), progress_(schema) {}

  bool Done() const { return next_ == order_.size(); }

  PackExtent Next() {
    PackExtent extent;  // up to the last chunk that fits
    PackExtent whole;   // up to the last chunk after which all fields have reached one sample
    // Kept beside `whole`, because the chunks that are given back are passed again in the next
    // extent.
    FieldProgress progress_at_whole = progress_;
    extent.offset = chunks_[order_[next_]].offset;
    std::size_t at = next_;
    while (at < order_.size() && Take(chunks_[order_[at]], extent)) {
      progress_.Pass(chunks_[order_[at++]]);
      if (!progress_.AllAtOneSample()) continue;
      whole = extent;
      progress_at_whole = progress_;
    }
    // Gives chunks back only if little space is lost. The last extent of a file keeps all of them.
    const std::uint64_t lost = extent.bytes - whole.bytes;
    if (at < order_.size() && whole.chunk_count > 0 && lost < extent_bytes_ / 8) {
      extent = whole;
      progress_ = progress_at_whole;
    }
    next_ += extent.chunk_count;
    return extent;
  }

 private:
  // Adds the chunk if it fits. The first chunk always fits, so that every extent has one.
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
  FieldProgress progress_;
  std::size_t next_ = 0;
};

}  // namespace

Result<PackCut> CutPack(const compress::PackSchema& schema, std::span<const ChunkEntry> chunks,
                        std::uint64_t extent_bytes) {
  PackCut cut;
  cut.order.resize(chunks.size());
  std::iota(cut.order.begin(), cut.order.end(), 0U);
  // The index is sorted by field, but extents are ranges of the file.
  std::sort(cut.order.begin(), cut.order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return chunks[a].offset < chunks[b].offset;
  });
  FOREBAY_TRY(CheckOrder(chunks, cut.order));
  Cutter cutter(schema, chunks, cut.order, extent_bytes);
  while (!cutter.Done()) cut.extents.push_back(cutter.Next());
  return cut;
}

}  // namespace forebay::catalog
