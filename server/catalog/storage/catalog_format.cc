// The arithmetic of fixed-size records, which writer and checker share, and the fingerprint. A
// fixed part's extents follow from its row: the writer stores what FixedExtent computes, and the
// checker compares, so look-ups may compute locations without reading the extent table.
#include "server/catalog/storage/catalog_format.h"

#include <algorithm>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::catalog {

Status CutFixedPart(std::uint64_t sample_count, std::uint64_t extent_bytes, PartRow& part) {
  // The writer's callers and the checker have refused zeros; both divide by these numbers here.
  FOREBAY_CHECK(part.record_bytes > 0 && extent_bytes > 0);
  std::uint64_t extent_count = 0;
  if (part.record_bytes <= extent_bytes) {
    part.records_per_extent = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        extent_bytes / part.record_bytes, limits::kSamplesPerExtentMax));
    part.extents_per_record = 1;
    part.chain_extent_bytes = 0;
    extent_count = (sample_count - 1) / part.records_per_extent + 1;
  } else {
    // A record that is larger than an extent gets a chain of extents, and shares none of them.
    const std::uint64_t pieces = (part.record_bytes - 1) / extent_bytes + 1;
    // Division, because the product of two counts from outside could wrap.
    if (pieces > limits::kExtentCountMax || sample_count > limits::kExtentCountMax / pieces) {
      return Error(ErrorCode::kResourceExhausted,
                   "more than " + std::to_string(limits::kExtentCountMax) +
                       " extents (kExtentCountMax): raise the data set's key 'extent'");
    }
    part.records_per_extent = 1;
    part.extents_per_record = static_cast<std::uint32_t>(pieces);
    part.chain_extent_bytes = extent_bytes;
    extent_count = sample_count * pieces;
  }
  if (extent_count > limits::kExtentCountMax) {
    return Error(ErrorCode::kResourceExhausted,
                 std::to_string(extent_count) + " extents exceed " +
                     std::to_string(limits::kExtentCountMax) +
                     " (kExtentCountMax): raise the data set's key 'extent'");
  }
  part.extent_count = static_cast<std::uint32_t>(extent_count);
  return {};
}

ExtentRow FixedExtent(const PartRow& part, std::uint32_t part_number,
                      std::uint64_t sample_count, std::uint32_t index) {
  ExtentRow row;
  row.part = part_number;
  row.first_object = part.first_object;
  if (part.extents_per_record == 1) {
    row.first_sample = std::uint64_t{index} * part.records_per_extent;
    row.sample_count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(part.records_per_extent, sample_count - row.first_sample));
    row.starting_count = row.sample_count;
    row.object_offset = part.data_offset + row.first_sample * part.record_bytes;
    row.bytes = static_cast<std::uint32_t>(row.sample_count * part.record_bytes);
    return row;
  }
  // A record that spans extents: extent `index` is part `piece` of record index /
  // extents_per_record.
  const std::uint32_t piece = index % part.extents_per_record;
  const std::uint64_t piece_offset = piece * part.chain_extent_bytes;
  row.first_sample = index / part.extents_per_record;
  row.sample_count = 1;
  row.starting_count = piece == 0 ? 1 : 0;
  row.object_offset = part.data_offset + row.first_sample * part.record_bytes + piece_offset;
  // The last extent of a chain is short: it ends with its record.
  row.bytes = static_cast<std::uint32_t>(
      std::min(part.chain_extent_bytes, part.record_bytes - piece_offset));
  return row;
}

std::uint64_t FingerprintOf(const HeaderRow& header) {
  // Sizes and offsets of sections are left out: they follow from the counts and say nothing more
  // about the data set.
  ByteWriter text;
  text.Le(header.magic);
  text.Le(header.version);
  text.Le(header.format);
  text.Le(header.sample_count);
  text.Le(header.total_bytes);
  text.Le(header.part_count);
  text.Le(header.object_count);
  text.Le(header.extent_count);
  text.Le(header.field_count);
  for (const SectionRow& section : header.sections) text.Le(section.hash);
  return Checksum(text.bytes());
}

}  // namespace forebay::catalog
