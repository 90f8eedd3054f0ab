// The checks a catalog image passes before anything in it is believed: magic, version, header,
// every table's checksum, and that the tables agree with each other. After them every access
// of CatalogImage is in bounds, whoever wrote the image; sample and key pages are checked at
// their first use.
#pragma once

#include <cstddef>
#include <span>

#include "proto/contract/result.h"
#include "server/catalog/storage/catalog_image.h"

namespace forebay::catalog {

// kFailedPrecondition: another format version (names both). kDataLoss: truncated or damaged;
// the message names the offset.
Result<ImageTables> CheckImage(std::span<const std::byte> image);

}  // namespace forebay::catalog
