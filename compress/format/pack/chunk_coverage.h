// ChunkCoverage: whether the chunks of a field are what a pack's index may hold.
#pragma once

#include <cstdint>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/limits.h"

namespace forebay::compress {

// Told of a field's chunks in order; says whether they cover samples 0 to `samples` of one pack,
// tile by tile and part by part, without gaps, each within the published limits. Borrows the field.
class ChunkCoverage {
 public:
  ChunkCoverage(const PackField& field, std::uint64_t samples)
      : field_(field), tiles_(field.tiles()), samples_(samples) {}

  // False where `entry` cannot follow; the sums of what it holds are within bounds where true.
  bool Next(const ChunkEntry& entry) {
    if (entry.head_bytes < kRecordPrefixBytes || entry.head_bytes > limits::kPackStartBytesMax ||
        entry.sample_count > field_.samples_per_chunk ||
        entry.sample_bytes > limits::kSampleBytesMax ||
        entry.payload_bytes > limits::kChunkBytesMax || entry.tile != tile_ ||
        entry.first_sample != first_ || entry.sample_count == 0 ||
        entry.sample_count > samples_ - first_) {
      return false;
    }
    if (tile_ > 0 && entry.sample_count != count_) return false;
    count_ = entry.sample_count;
    if (entry.sample_bytes != 0) return NextPart(entry);
    if (entry.part_offset != 0 || part_ != 0) return false;
    if (++tile_ == tiles_) {
      tile_ = 0;
      first_ += count_;
    }
    return true;
  }

  bool Complete() const { return first_ == samples_ && tile_ == 0 && part_ == 0; }

 private:
  // A sample in several chunks, of 4 MiB each but the last.
  bool NextPart(const ChunkEntry& entry) {
    if (!field_.variable() || entry.sample_count != 1 || entry.part_offset != part_ ||
        entry.sample_bytes <= limits::kChunkBytesMax ||
        (part_ > 0 && entry.sample_bytes != part_of_)) {
      return false;
    }
    part_of_ = entry.sample_bytes;
    part_ += limits::kChunkBytesMax;
    if (part_ >= part_of_) {
      part_ = 0;
      ++first_;
    }
    return true;
  }

  const PackField& field_;
  const std::uint32_t tiles_;
  const std::uint64_t samples_;
  std::uint32_t tile_ = 0, count_ = 0;
  std::uint64_t first_ = 0, part_ = 0, part_of_ = 0;
};

}  // namespace forebay::compress
