// The key of an extent on a tier, and the checksums that are stored with it. Both are computed by
// the daemon that reads the extent from the GFS, and by every daemon that looks for it later.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/checksum.h"
#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"

namespace forebay::tier {

// Names one extent of one data set, as it was when it was read. `identity` covers the paths, sizes
// and modification times of its objects, and its range. So the extent of a changed object has
// another key, and a stale copy is never found.
//
// Extents of a format that is scanned are stored before it is known how many extents the objects
// before theirs have, perhaps by another node. So their keys have the number of the extent among
// those of its object. Dataset::ExtentOf finds the extent of a key.
struct ExtentKey {
  std::uint64_t dataset = 0;   // DatasetHash(name)
  ExtentId extent;             // its number in the data set or, if that is scanned, in its object
  std::uint64_t identity = 0;  // ExtentIdentity(...)
  auto operator<=>(const ExtentKey&) const = default;
};

// For unordered containers in memory. Not stable: never store or send it.
struct ExtentKeyHash {
  std::size_t operator()(const ExtentKey& key) const {
    // `identity` is itself a hash; the extent keeps unit tests' small identities apart.
    return static_cast<std::size_t>(key.identity ^ (key.dataset * 0x9E3779B97F4A7C15ULL) ^
                                    (key.extent.value() * 0xC2B2AE3D27D4EB4FULL));
  }
};

// "dataset-extent-identity" in hexadecimal, 42 characters; for file names and messages.
std::string KeyText(const ExtentKey& key);

std::uint64_t DatasetHash(std::string_view name);
// `objects` are the extent's objects in order.
std::uint64_t ExtentIdentity(const catalog::ExtentInfo& extent,
                             std::span<const catalog::ObjectInfo> objects);
ExtentKey KeyOf(const catalog::Catalog& catalog, ExtentId extent);
// The keys of all extents.
std::vector<ExtentKey> KeysOf(const catalog::Catalog& catalog);

// The checksums that were taken when the extent was first read from the GFS (docs/design.md, 7.1).
// Piece i is the part of sample info.first_sample + i that lies in this extent or, in a data set of
// packs, the extent's i-th chunk.
struct ExtentChecksums {
  std::uint64_t image = 0;
  std::vector<std::uint64_t> pieces;
};

// The identity that goes into the checksum of a piece, so that intact bytes of another piece do not
// pass. The image itself has offset 0 and its own length.
ChecksumIdentity PieceIdentity(const ExtentKey& key, std::uint32_t offset, std::uint64_t length);
// Checksums of an image and its pieces. Reads the image twice. Every piece must lie within the
// image (checked), as catalog::Catalog::Pieces promises.
ExtentChecksums ComputeChecksums(const ExtentKey& key, std::span<const std::byte> image,
                                 std::span<const catalog::Range> pieces);
// Verifies `bytes`, the content of `piece`, against its checksum. kDataLoss names extent and piece.
Status VerifyPiece(const ExtentKey& key, const catalog::Range& piece, std::uint64_t expected,
                   std::span<const std::byte> bytes);

}  // namespace forebay::tier
