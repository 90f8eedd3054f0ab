// The image of a catalog of packs as it lies on disk and in memory: constants and rows.
// docs/catalog.md describes the same layout in words. A change of the layout needs a new version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "server/catalog/storage/catalog_format.h"

namespace forebay::catalog {

inline constexpr std::uint64_t kPackCatalogMagic = 0x3154'4350'5942'4546ULL;  // "FEBYPCT1"
inline constexpr std::uint32_t kPackCatalogVersion = 1;

enum class PackSection : std::uint32_t {
  kMeta = 0,      // the data set's name, and a pack's header and schema
  kObjects = 1,   // PackObjectRow each
  kNames = 2,     // the objects' paths, one after another
  kExtents = 3,   // PackExtentRow each
  kChunks = 4,    // PackChunkRow each, by field, sample, tile, part
  kPieces = 5,    // u32 each: the chunks of the extents, in image order
  kKeyIndex = 6,  // u64 offset into kKeys of every 16th sample's key; empty without keys
  kKeys = 7,      // u16 length and bytes of each sample's key
};
inline constexpr std::size_t kPackSectionCount = 8;

struct PackHeaderRow {
  std::uint64_t magic = kPackCatalogMagic;
  std::uint32_t version = kPackCatalogVersion;
  std::uint32_t object_count = 0;
  std::uint64_t image_bytes = 0;   // of the whole image
  std::uint64_t sample_count = 0;
  std::uint64_t total_bytes = 0;   // over all extents
  std::uint64_t fingerprint = 0;
  std::uint64_t chunk_count = 0;
  std::uint32_t extent_count = 0;
  std::uint32_t field_count = 0;
  SectionRow sections[kPackSectionCount];
  std::uint8_t reserved[248] = {};  // zero
  std::uint64_t hash = 0;           // XXH3-64 of the 504 bytes before it

  const SectionRow& section(PackSection kind) const {
    return sections[static_cast<std::size_t>(kind)];
  }
};

struct PackObjectRow {
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t identity = 0;     // compress::PackIdentity
  std::uint64_t sample_base = 0;  // the data set's number of the file's first sample
  std::uint64_t samples = 0;
  std::uint64_t name_offset = 0;  // in kNames
  std::uint32_t name_bytes = 0;
  std::uint32_t reserved = 0;
};

struct PackExtentRow {
  std::uint64_t object_offset = 0;
  std::uint64_t first_sample = 0;  // in the data set: the smallest of any chunk
  std::uint64_t first_piece = 0;   // in kPieces
  std::uint32_t object = 0;
  std::uint32_t bytes = 0;
  std::uint32_t sample_count = 0;  // up to the last sample of any chunk
  std::uint32_t piece_count = 0;
};

// A compress::ChunkEntry whose first_sample counts within the data set, and the chunk's place.
struct PackChunkRow {
  std::uint64_t first_sample = 0;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t head_checksum = 0;
  std::uint32_t field = 0;
  std::uint32_t tile = 0;
  std::uint32_t sample_count = 0;
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t part_offset = 0;
  std::uint32_t sample_bytes = 0;
  std::uint32_t object = 0;
  std::uint32_t extent = 0;
  std::uint32_t piece = 0;  // among those of the extent
};

static_assert(sizeof(PackHeaderRow) == kHeaderBytes &&
              std::is_trivially_copyable_v<PackHeaderRow>);
static_assert(sizeof(PackObjectRow) == 56 && std::is_trivially_copyable_v<PackObjectRow>);
static_assert(sizeof(PackExtentRow) == 40 && std::is_trivially_copyable_v<PackExtentRow>);
static_assert(sizeof(PackChunkRow) == 64 && std::is_trivially_copyable_v<PackChunkRow>);

// The fingerprint of a catalog with this header: counts and the hashes of all sections.
std::uint64_t FingerprintOf(const PackHeaderRow& header);
// The hash of the header itself, for PackHeaderRow::hash.
std::uint64_t HashOf(const PackHeaderRow& header);

}  // namespace forebay::catalog
