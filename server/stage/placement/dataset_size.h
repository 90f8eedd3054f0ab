// DatasetSize: how much space a data set takes on the tiers, found out without reading its samples.
// Used by `forebayd --check`.
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
  // True for a format that needs a pass, without a saved catalog: its extents are not known yet.
  // `bytes` is then the size of the objects, and `extents` take at least as much space as the real
  // ones, unless samples are smaller than the format expects (catalog::ScannedSampleBytes).
  bool is_at_most = false;
  bool is_compressed = false;  // at staging: `extents` are upper bounds
  // By extent, in staging order: its space on each tier, and the bytes of its image.
  std::vector<plan::Footprint> extents;
  std::vector<std::uint64_t> image_bytes;
  // A remark for the user, or empty: "its saved catalog no longer matches ...".
  std::string note;
};

// Computes the size of a data set from its saved catalog, if `catalog_path` has one that fits, else
// from names, sizes and headers. Takes as long as cataloguing, except for formats that need a pass,
// whose objects are only looked at. Saves nothing. Errors are those of cataloguing.
Result<DatasetSize> SizeOf(io::IoBackend& backend, io::Directory& root,
                           const DatasetOptions& options, const std::string& catalog_path);

}  // namespace forebay::stage
