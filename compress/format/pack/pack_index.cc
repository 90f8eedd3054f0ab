// The index and the footer of a pack (docs/pack.md): fixed-size entries, checked for order and
// coverage (ChunkCoverage) when they are read. Numbers of entries are compared with the bytes that
// are there before anything is allocated.
#include <algorithm>
#include <string>
#include <string_view>

#include "compress/format/damaged.h"
#include "compress/format/pack/chunk_coverage.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kIndexPart = "pack";  // in errors
// WritePackIndex writes this many bytes for each entry. The reader divides by them before it
// allocates.
constexpr std::size_t kChunkEntryBytes = 64;
constexpr std::size_t kKeyEntryBytes = 40;

}  // namespace

std::vector<std::byte> WritePackIndex(const PackIndex& index) {
  ByteWriter writer;
  writer.Le(index.samples);
  writer.Le(static_cast<std::uint64_t>(index.chunks.size()));
  writer.Le(static_cast<std::uint64_t>(index.keys.size()));
  // Entries of a fixed size let a reader compare the counts with the payload's size before it
  // allocates.
  for (const ChunkEntry& entry : index.chunks) {
    writer.Le(entry.field);
    writer.Le(entry.tile);
    writer.Le(entry.first_sample);
    writer.Le(entry.sample_count);
    writer.Le(entry.head_bytes);
    writer.Le(entry.offset);
    writer.Le(entry.payload_bytes);
    writer.Le(entry.part_offset);
    writer.Le(entry.sample_bytes);
    writer.Le(entry.head_checksum);
  }
  for (const KeyEntry& entry : index.keys) {
    writer.Le(entry.first_sample);
    writer.Le(entry.sample_count);
    writer.Le(entry.head_bytes);
    writer.Le(entry.offset);
    writer.Le(entry.payload_bytes);
    writer.Le(entry.head_checksum);
  }
  return writer.Release();
}

Result<PackIndex> ReadPackIndex(const PackSchema& schema, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  PackIndex index;
  index.samples = reader.ReadLe<std::uint64_t>();
  const auto chunks = reader.ReadLe<std::uint64_t>();
  const auto keys = reader.ReadLe<std::uint64_t>();
  // Each count is bounded by itself first, so that the sum of products below cannot wrap. Together
  // the entries must fill the payload exactly.
  if (!reader.ok() || chunks > reader.remaining() / kChunkEntryBytes ||
      keys > reader.remaining() / kKeyEntryBytes ||
      chunks * kChunkEntryBytes + keys * kKeyEntryBytes != reader.remaining()) {
    return Damaged(kIndexPart, "the counts of the index do not fit its size");
  }
  // At most as many entries as the payload has bytes for, and the payload is in memory already.
  index.chunks.reserve(static_cast<std::size_t>(chunks));
  for (std::uint64_t i = 0; i < chunks; ++i) {
    ChunkEntry& entry = index.chunks.emplace_back();
    entry.field = reader.ReadLe<std::uint32_t>();
    entry.tile = reader.ReadLe<std::uint32_t>();
    entry.first_sample = reader.ReadLe<std::uint64_t>();
    entry.sample_count = reader.ReadLe<std::uint32_t>();
    entry.head_bytes = reader.ReadLe<std::uint32_t>();
    entry.offset = reader.ReadLe<std::uint64_t>();
    entry.payload_bytes = reader.ReadLe<std::uint64_t>();
    entry.part_offset = reader.ReadLe<std::uint64_t>();
    entry.sample_bytes = reader.ReadLe<std::uint64_t>();
    entry.head_checksum = reader.ReadLe<std::uint64_t>();
  }
  for (std::uint64_t i = 0; i < keys; ++i) {
    KeyEntry& entry = index.keys.emplace_back();
    entry.first_sample = reader.ReadLe<std::uint64_t>();
    entry.sample_count = reader.ReadLe<std::uint32_t>();
    entry.head_bytes = reader.ReadLe<std::uint32_t>();
    entry.offset = reader.ReadLe<std::uint64_t>();
    entry.payload_bytes = reader.ReadLe<std::uint64_t>();
    entry.head_checksum = reader.ReadLe<std::uint64_t>();
  }
  // A checksum vouches for the bytes, not for their writer: what the entries say is checked too.
  FOREBAY_TRY(CheckPackIndex(schema, index));
  return index;
}

Status CheckPackIndex(const PackSchema& schema, const PackIndex& index) {
  if (index.samples > limits::kSampleCountMax) {
    return Damaged(kIndexPart, "there are too many samples");
  }
  // Entries are sorted by field. Each field must take exactly its own ones, so one pass over the
  // index checks the order, the coverage and that no entry is left over.
  std::size_t next = 0;
  for (std::uint32_t number = 0; number < schema.fields.size(); ++number) {
    ChunkCoverage coverage(schema.fields[number], index.samples);
    for (; next < index.chunks.size() && index.chunks[next].field == number; ++next) {
      const ChunkEntry& entry = index.chunks[next];
      if (!coverage.Next(entry)) {
        return Damaged(kIndexPart, "the chunks of field " + schema.fields[number].name +
                                       " do not follow one another, at sample " +
                                       std::to_string(entry.first_sample));
      }
    }
    if (!coverage.Complete()) {
      return Damaged(kIndexPart, "the chunks of field " + schema.fields[number].name +
                                     " do not cover all samples");
    }
  }
  if (next != index.chunks.size()) {
    return Damaged(kIndexPart, "the index names a field that does not exist");
  }
  // Key records follow one another in the order of samples and cover all of them, or none in a pack
  // without keys. The bounds matter to readers, who allocate the payload of a record at once and a
  // string for each of its samples.
  std::uint64_t first = 0;
  for (const KeyEntry& entry : index.keys) {
    if (entry.first_sample != first || entry.sample_count == 0 ||
        entry.sample_count > index.samples - first ||
        entry.payload_bytes > limits::kPackKeysBytesMax ||
        entry.sample_count > entry.payload_bytes ||  // a key takes a byte at least
        entry.head_bytes < kRecordPrefixBytes || entry.head_bytes > limits::kPackStartBytesMax) {
      return Damaged(kIndexPart, "the key records do not follow one another");
    }
    first += entry.sample_count;
  }
  // The loop above kept first <= samples, so neither this comparison nor the sums could wrap.
  if (first != (schema.keyed ? index.samples : 0)) {
    return Damaged(kIndexPart, "the keys do not cover all samples");
  }
  return {};
}

std::vector<std::byte> WritePackFooter(std::uint64_t identity, const PackFooter& footer) {
  ByteWriter writer;
  writer.Le(identity);
  writer.Le(footer.index_offset);
  writer.Le(footer.index_bytes);
  writer.Le(footer.samples);
  // A size of 0 says that the pack has no statistics; the offset then means nothing.
  writer.Le(footer.statistics_offset);
  writer.Le(footer.statistics_bytes);
  // The magic is the file's last word, so a file that was cut off is recognised by its end.
  writer.Le(Checksum(writer.bytes()));
  writer.Le(kFooterMagic);
  return writer.Release();
}

Result<PackFooter> ReadPackFooter(std::uint64_t identity, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto written_for = reader.ReadLe<std::uint64_t>();
  PackFooter footer;
  footer.index_offset = reader.ReadLe<std::uint64_t>();
  footer.index_bytes = reader.ReadLe<std::uint64_t>();
  footer.samples = reader.ReadLe<std::uint64_t>();
  footer.statistics_offset = reader.ReadLe<std::uint64_t>();
  footer.statistics_bytes = reader.ReadLe<std::uint64_t>();
  const auto checksum = reader.ReadLe<std::uint64_t>();
  const auto magic = reader.ReadLe<std::uint64_t>();
  // The footer names the pack it was written for: one that is left over from another file at the
  // same place is refused.
  if (!reader.ok() || magic != kFooterMagic || written_for != identity ||
      Checksum(bytes.first(48)) != checksum) {
    return Damaged(kIndexPart, "there is no valid footer: the file is incomplete or damaged");
  }
  // The caller reads this many bytes at once, so the number is bounded here.
  if (footer.index_bytes < kRecordPrefixBytes || footer.index_bytes > limits::kPackIndexBytesMax) {
    return Damaged(kIndexPart, "the index has an impossible size");
  }
  return footer;
}

}  // namespace forebay::compress
