// The checks that a catalog of packs must pass before any of it is used: magic, version, header,
// every section's checksum, every row, and that the tables agree with each other. After them every
// access of PackCatalog stays in bounds, even if the image is forged.
#pragma once

#include <cstddef>
#include <span>

#include "proto/contract/result.h"
#include "server/catalog/pack/pack_catalog.h"

namespace forebay::catalog {

// Returns the tables of `image`, as spans into it. kFailedPrecondition: another format version; the
// message names both versions. kDataLoss: truncated or damaged; the message names the offset.
Result<PackTables> CheckPackImage(std::span<const std::byte> image);

}  // namespace forebay::catalog
