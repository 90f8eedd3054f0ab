// ScanTables: the extents that a ScanBuilder has cut and the samples in them, and the catalog that
// is written from them at the end. All formats that are scanned use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/format.h"
#include "server/catalog/sample_records.h"
#include "server/catalog/scan_builder.h"
#include "server/catalog/storage/build_scratch.h"
#include "server/catalog/storage/catalog_format.h"

namespace forebay::catalog {

// Use: call AddSample for every sample and AddExtent for every extent, each in order, then Write.
// An extent may be added before the samples that begin in it. Memory: 64 bytes per extent, and what
// BuildScratch allows. Not thread-safe. Unusable after an error.
class ScanTables {
 public:
  explicit ScanTables(const BuildScratch& scratch) : scratch_(scratch), records_(scratch) {}

  // Adds a sample whose first extent begins at `extent_start` of the object. Returns the place of
  // its record, for KeyAt.
  Result<std::uint64_t> AddSample(const SampleRecord& record, std::uint64_t extent_start) {
    return records_.Append(record, extent_start);
  }
  Result<std::string> KeyAt(std::uint64_t place) const { return records_.KeyAt(place); }

  // Adds an extent and appends it to `cut`. `pieces` are the byte ranges of its samples. This sets
  // row.first_sample and the extent of each piece. kResourceExhausted beyond
  // limits::kExtentCountMax; the error names `path`, the extent's object.
  Status AddExtent(ExtentRow row, std::string_view path, std::vector<Range> pieces,
                   std::vector<ScanBuilder::CutExtent>& cut);

  // The parts of a catalog that the caller knows: its name, its format, its objects and fields.
  struct Subject {
    const std::string& name;
    Format format;
    std::span<const ScanBuilder::PlannedObject> objects;
    // Names of the fields. SampleField::field is the index in this list; the catalog sorts the
    // fields by name.
    std::span<const std::string> fields;
  };
  Result<std::shared_ptr<const Catalog>> Write(const Subject& subject) const;

 private:
  const BuildScratch scratch_;
  std::vector<ExtentRow> extents_;
  SampleRecords records_;
  std::uint64_t sample_count_ = 0;  // samples that begin in an extent that was added
};

}  // namespace forebay::catalog
