// The checks that a catalog image must pass before any of it is used: magic, version, header, every
// table's checksum, and that the tables agree with each other. After them every access of
// CatalogImage stays in bounds, even if the image is forged. Sample and key pages are checked at
// their first use.
#pragma once

#include <cstddef>
#include <span>

#include "proto/contract/result.h"
#include "server/catalog/storage/catalog_image.h"

namespace forebay::catalog {

// Returns the tables of `image`, as spans into it. kFailedPrecondition: another format version; the
// message names both versions. kDataLoss: truncated or damaged; the message names the offset.
Result<ImageTables> CheckImage(std::span<const std::byte> image);

}  // namespace forebay::catalog
