// DatasetSize: what a data set takes on the tiers, found out without reading its samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"

namespace forebay::stage {

struct DatasetSize {
  catalog::Format format{};
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;  // of all extents
  // A format that is catalogued by a pass, without a saved catalog: extents are not known yet.
  // `bytes` are the objects', and `extents` take at least what the true ones do, unless samples are
  // smaller than the format expects (catalog::ScannedSampleBytes).
  bool is_at_most = false;
  bool is_compressed = false;  // at staging: `extents` are what they take at most
  // In the order of staging: what the placer reckons with, and the bytes of the image.
  std::vector<plan::Footprint> extents;
  std::vector<std::uint64_t> image_bytes;
  // Empty, or what the user should know: "its saved catalog no longer fits ...".
  std::string note;
};

// Of the data set's saved catalog, where `catalog_path` has one that fits; else of names, sizes and
// headers. Costs what cataloguing costs but for formats that need a pass, whose objects are
// only looked at. Saves
// nothing. Errors are those of cataloguing.
Result<DatasetSize> SizeOf(io::IoBackend& backend, io::Directory& root,
                           const DatasetOptions& options, const std::string& catalog_path);

}  // namespace forebay::stage
