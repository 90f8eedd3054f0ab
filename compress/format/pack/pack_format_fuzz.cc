// Fuzz target: the container's parsers without their checksums. The first byte names one:
// 0 a schema (the header is made for it), 1 what a chunk's record adds, 2 an index's payload,
// 3 a record's prefix, 4 a footer. What parses is within limits and can be written again.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

// A fixed field in tiles, and byte strings.
PackSchema SchemaOfTests() {
  PackSchema schema;
  schema.fields = {{.name = "image", .kind = FieldKind::kImage, .dtype = Dtype::kU16, .rank = 2,
                    .extent = {5, 7, 1, 1}, .fill_bits = {}, .bound = {},
                    .samples_per_chunk = 3, .tile = {3, 7, 1, 1}},
                   {.name = "text", .kind = FieldKind::kRaw, .fill_bits = {}, .bound = {},
                    .samples_per_chunk = 100}};
  return schema;
}

constexpr PackId kId = {std::byte{1}, std::byte{2}};

void CheckSchemaBytes(std::span<const std::byte> body) {
  // Fuzzers cannot guess checksums. So the target writes the header and makes its checksums right,
  // and the fuzzer's bytes get past them to the parser.
  ByteWriter writer;
  writer.Le(kPackMagic);
  writer.Le(kPackMajor);
  writer.Le(kPackMinor);
  writer.Le(std::uint32_t{8});
  writer.Le(std::uint64_t{0});  // features
  writer.Le(static_cast<std::uint64_t>(body.size()));
  writer.Le(Checksum(body));
  writer.Bytes(kId);
  writer.Le(Checksum(writer.bytes()));
  writer.Bytes(body);
  const auto schema = ReadPackStart(writer.bytes());
  if (!schema.has_value()) return;
  // A schema that a reader accepts must be one that a writer may write.
  if (!CheckSchema(*schema).has_value()) __builtin_trap();
  // What was read, written and read again, is written the same.
  const auto once = WritePackStart(*schema, kId);
  const auto again = ReadPackStart(once);
  if (!again.has_value() || WritePackStart(*again, kId) != once) __builtin_trap();
  // As catalogs keep it.
  const auto alone = ReadPackStart(WriteSchema(*schema));
  if (!alone.has_value() || WritePackStart(*alone, kId) != once) __builtin_trap();
  // The bounds on which chunk decoders and allocations rely.
  for (const PackField& field : schema->fields) {
    if (field.variable()) continue;
    const std::uint32_t last = field.tiles() - 1;
    if (field.Shape(0, field.samples_per_chunk).bytes() > limits::kChunkBytesMax) {
      __builtin_trap();
    }
    for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
      if (field.TileOrigin(last)[axis] + field.TileExtent(last)[axis] != field.extent[axis]) {
        __builtin_trap();
      }
    }
  }
}

void CheckChunkHeadBytes(std::span<const std::byte> added) {
  const PackSchema schema = SchemaOfTests();
  const auto head = ReadChunkHead(schema, added);
  if (!head.has_value()) return;
  const PackField& field = schema.fields[head->field];
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < head->sample_count; ++i) {
    // Reads every checksum, so that an address sanitiser finds a span that is too short.
    static_cast<void>(head->ChecksumOf(i));
    if (field.variable()) total += head->LengthOf(i);
  }
  if (head->raw_bytes > limits::kChunkBytesMax || head->tile >= field.tiles() ||
      (field.variable() && total != head->raw_bytes) ||
      WriteChunkHead(*head).size() != added.size()) {
    __builtin_trap();
  }
}

void CheckIndexBytes(std::span<const std::byte> payload) {
  const PackSchema schema = SchemaOfTests();
  const auto index = ReadPackIndex(schema, payload);
  if (!index.has_value()) return;
  const auto written = WritePackIndex(*index);
  // An index has one form only. Otherwise two files of equal content could differ.
  if (!std::equal(written.begin(), written.end(), payload.begin(), payload.end())) {
    __builtin_trap();
  }
  // Each field's chunks hold all samples, once.
  std::vector<std::uint64_t> held(schema.fields.size(), 0);
  for (const ChunkEntry& entry : index->chunks) {
    const PackField& field = schema.fields[entry.field];
    const bool last_part = entry.sample_bytes == 0 ||
                           entry.sample_bytes - entry.part_offset <= limits::kChunkBytesMax;
    if (entry.tile + 1 == field.tiles() && last_part) held[entry.field] += entry.sample_count;
  }
  for (const std::uint64_t count : held) {
    if (count != index->samples) __builtin_trap();
  }
}

void Check(std::uint8_t parser, std::span<const std::byte> bytes) {
  switch (parser) {
    case 0: return CheckSchemaBytes(bytes);
    case 1: return CheckChunkHeadBytes(bytes);
    case 2: return CheckIndexBytes(bytes);
    // Checksums make it unlikely that a fuzzed head matches. The test is that no size in the head
    // leads beyond the input.
    case 3: {
      const auto prefix = ReadRecordPrefix(bytes);
      if (prefix.has_value() && (prefix->head_bytes < kRecordPrefixBytes ||
                                 prefix->head_bytes > limits::kPackStartBytesMax)) {
        __builtin_trap();
      }
      static_cast<void>(CheckRecordHead(1, 2, bytes));
      return;
    }
    case 4: {
      std::vector<std::byte> footer(bytes.begin(), bytes.end());
      footer.resize(kFooterBytes);
      const std::uint64_t checksum = Checksum(std::span(footer).first(48));
      // The footer's checksum is put right, as the header's above.
      for (std::size_t i = 0; i < 8; ++i) {
        footer[48 + i] = static_cast<std::byte>(checksum >> (8 * i) & 0xFF);
      }
      // The input's own first word, so that the comparison of identities never ends the parse
      // early.
      const auto identity = ByteReader(footer).ReadLe<std::uint64_t>();
      static_cast<void>(ReadPackFooter(identity, footer));
      return;
    }
    default: return;
  }
}

}  // namespace
}  // namespace forebay::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  forebay::compress::Check(data[0], std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
