// The checks a catalog of packs passes before anything in it is believed: magic, version, header,
// every section's checksum, every row, and that the tables agree with each other. After them every
// access of PackCatalog is in bounds, whoever wrote the image.
#pragma once

#include <cstddef>
#include <span>

#include "proto/contract/result.h"
#include "server/catalog/pack/pack_catalog.h"

namespace forebay::catalog {

// kFailedPrecondition: another format version (names both). kDataLoss: truncated or damaged; the
// message names the offset.
Result<PackTables> CheckPackImage(std::span<const std::byte> image);

}  // namespace forebay::catalog
