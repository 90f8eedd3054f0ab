// Test support: corrects the checksums of damaged images of catalogs of packs, and makes all
// look-ups in an image that opens. For tests and fuzz targets only.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/catalog/catalog.h"
#include "server/catalog/pack/pack_image_format.h"
#include "server/catalog/pack/pack_table.h"

namespace forebay::catalog {

// Corrects the hashes within a schema.
inline void SealPackSchema(std::span<std::byte> meta) {
  constexpr std::size_t kSizeAt = 32, kHashAt = 40, kHeaderHashAt = 56;
  ByteReader reader(meta);
  (void)reader.ReadString(limits::kNameBytesMax);
  const std::span<std::byte> start = meta.subspan(reader.offset());
  if (!reader.ok() || start.size() < compress::kPackHeaderBytes) return;
  const std::uint64_t size = start.size() - compress::kPackHeaderBytes;
  std::memcpy(&start[kSizeAt], &size, sizeof size);
  const std::uint64_t schema = Checksum(start.subspan(compress::kPackHeaderBytes));
  std::memcpy(&start[kHashAt], &schema, sizeof schema);
  const std::uint64_t header = Checksum(start.first(kHeaderHashAt));
  std::memcpy(&start[kHeaderHashAt], &header, sizeof header);
}

// Corrects every checksum, and magic and version.
inline void SealPackImage(std::span<std::byte> image) {
  if (image.size() < kHeaderBytes) return;
  auto header = LoadAt<PackHeaderRow>(image, 0);
  header.magic = kPackCatalogMagic;
  header.version = kPackCatalogVersion;
  header.image_bytes = image.size();
  for (std::size_t i = 0; i < kPackSectionCount; ++i) {
    SectionRow& section = header.sections[i];
    const bool is_inside = section.offset >= kHeaderBytes && section.offset <= image.size() &&
                           section.bytes <= image.size() - section.offset;
    if (!is_inside) continue;
    const std::span<std::byte> bytes = image.subspan(section.offset, section.bytes);
    if (i == static_cast<std::size_t>(PackSection::kMeta)) SealPackSchema(bytes);
    section.hash = Checksum(bytes);
  }
  header.fingerprint = FingerprintOf(header);
  header.hash = HashOf(header);
  std::memcpy(image.data(), &header, sizeof header);
}

// Looks up every object, extent and chunk, and the first and last samples. Returns false if an
// answer is out of bounds.
inline bool AnswersWithinBounds(const Catalog& catalog) {
  constexpr std::uint64_t kSamplesAsked = 64;
  const PackTable& table = *catalog.packs();
  for (std::uint32_t i = 0; i < catalog.object_count(); ++i) {
    const ObjectInfo object = catalog.object(ObjectId(i));
    if (object.path.empty() || object.path.size() > limits::kPathBytesMax) return false;
  }
  std::uint64_t pieces_seen = 0;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const ExtentInfo extent = catalog.extent(ExtentId(i));
    std::vector<Range> pieces;
    if (!catalog.Pieces(ExtentId(i), pieces).has_value()) return false;
    std::uint64_t end = 0;
    for (const Range& piece : pieces) {
      if (piece.offset < end || piece.length > extent.bytes - piece.offset) return false;
      end = piece.offset + piece.length;
    }
    pieces_seen += pieces.size();
  }
  for (std::uint64_t i = 0; i < table.chunk_count(); ++i) {
    const PackChunk chunk = table.chunk(i);
    if (chunk.extent.value() >= catalog.extent_count()) return false;
    const ExtentInfo extent = catalog.extent(chunk.extent);
    if (chunk.entry.field >= table.schema().fields.size() || chunk.image_offset > extent.bytes ||
        chunk.bytes() > extent.bytes - chunk.image_offset ||
        chunk.first_sample() + chunk.entry.sample_count > catalog.sample_count()) {
      return false;
    }
  }
  for (std::uint64_t s = 0; s < std::min(kSamplesAsked, catalog.sample_count()); ++s) {
    for (const std::uint64_t sample : {s, catalog.sample_count() - 1 - s}) {
      if (!catalog.SampleKey(SampleId(sample)).has_value()) return false;
      for (std::uint32_t field = 0; field < table.schema().fields.size(); ++field) {
        const ChunkGroup group = table.GroupOf(field, SampleId(sample));
        if (group.count == 0 || group.first > table.chunk_count() ||
            group.count > table.chunk_count() - group.first) {
          return false;
        }
      }
    }
  }
  return pieces_seen == table.chunk_count();
}

}  // namespace forebay::catalog
