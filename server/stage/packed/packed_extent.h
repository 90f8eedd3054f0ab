// The image of an extent that is compressed at staging (docs/packed_extent.md): a directory, then a
// chunk record for each run of samples. ExtentPacker writes it; fetch/packed and the node that
// receives it from another one read it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/pack/pack_table.h"
#include "server/stage/packed/packed_form.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

inline constexpr std::uint64_t kPackedExtentMagic = 0x3154'5845'4B50'4246;  // "FBPKEXT1"
inline constexpr std::uint32_t kPackedExtentVersion = 2;
inline constexpr std::uint64_t kDirectoryHeadBytes = 32, kDirectoryRowBytes = 24;
// A chunk record's head without its checksums of samples, and padding before the next record.
inline constexpr std::uint64_t kRecordHeadBytesMax = 96;

constexpr std::uint64_t DirectoryBytes(std::uint64_t chunks) {
  return kDirectoryHeadBytes + chunks * kDirectoryRowBytes;
}

// A packed image, in memory outside the arena.
struct PackedExtent {
  std::vector<std::byte> directory;
  std::vector<std::vector<std::byte>> records;  // each padded to 8 bytes
  std::vector<catalog::Range> pieces;           // the directory, then the records
  std::uint64_t bytes = 0;                      // of the image
  std::uint32_t escaped_chunks = 0;  // failed the round-trip check; stored uncompressed

  // Copies the image to `image`, whose size must be `bytes`.
  void CopyTo(std::span<std::byte> image) const;
};

// Encodes an extent's raw image under its packed key, chunk by chunk. Each chunk is decoded again
// and compared; a chunk that differs is stored uncompressed. Takes memory for the packed image and
// two chunks. `raw_checksum` is that of the raw image (tier::ExtentChecksums), which goes into the
// directory. `is_cancelled`, if set, is called before each chunk. Errors: kInvalidArgument: the
// image has another length than the extent; kCancelled.
Result<PackedExtent> PackExtent(const PackedForm& form, const tier::ExtentKey& key,
                                std::span<const std::byte> image, std::uint64_t raw_checksum,
                                const std::function<bool()>& is_cancelled = nullptr);

// A checked directory. Borrows everything; does not copy the rows.
class PackedDirectory {
 public:
  // kDataLoss: `bytes` are not the directory of the extent with this packed key.
  static Result<PackedDirectory> Open(const PackedForm& form, const tier::ExtentKey& key,
                                      std::uint64_t image_bytes,
                                      std::span<const std::byte> bytes);

  // As Open, for a whole image.
  static Result<PackedDirectory> OpenIn(const PackedForm& form, const tier::ExtentKey& key,
                                        std::span<const std::byte> image);

  // The checksum of the raw image, under the key of the raw extent: a first read has the same.
  std::uint64_t raw_checksum() const { return raw_checksum_; }
  // Where chunk `number` lies, as if the image were a pack file: its samples are counted from the
  // extent's first. kDataLoss: it would lie outside the image.
  Result<catalog::PackChunk> ChunkAt(std::uint32_t number) const;

 private:
  PackedDirectory(const PackedForm& form, const tier::ExtentKey& key, std::uint64_t image_bytes,
                  std::uint64_t raw_checksum, std::span<const std::byte> rows)
      : form_(&form),
        key_(key),
        image_bytes_(image_bytes),
        raw_checksum_(raw_checksum),
        rows_(rows) {}

  const PackedForm* form_;
  tier::ExtentKey key_;
  std::uint64_t image_bytes_;
  std::uint64_t raw_checksum_;
  std::span<const std::byte> rows_;
};

// The pieces of a whole image: its directory, then its chunk records. kDataLoss: the image is not
// the one that belongs to the extent of this packed key.
Result<std::vector<catalog::Range>> PackedPieces(const PackedForm& form, const tier::ExtentKey& key,
                                                 std::span<const std::byte> image);

}  // namespace forebay::stage
