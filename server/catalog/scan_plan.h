// ScanPlan: how to catalogue a data set of a format without an index (archives, lines of text): its
// objects, and the scanner that reads each of them. ObjectScan reads one object and makes the
// object's part of the catalog (CatalogPart); PartMerger makes the catalog from the parts of all
// objects. So objects may be scanned in any order, and by different nodes of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/format.h"
#include "server/catalog/storage/build_scratch.h"

namespace forebay::catalog {

// Scans one object: a format without an index implements this. Memory: the samples of one extent,
// and what BuildScratch allows. Not thread-safe. Unusable after an error.
class ObjectScanner {
 public:
  virtual ~ObjectScanner() = default;

  // Feeds the next bytes of the object, and appends the extents that they complete to `cut`. Errors
  // about malformed input name object, offset and reason.
  virtual Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) = 0;
  // The first byte of the object that an extent may still need. The caller may drop all bytes
  // before it. It lies at most two extents and limits::kExtentBytesMax behind the end of what was
  // fed, even if a long run of bytes belongs to no sample.
  virtual std::uint64_t NeededFrom() const = 0;
  // Ends the object. kDataLoss if it ended within a sample, or before its planned size.
  virtual Status End(std::vector<CutExtent>& cut) = 0;
};

struct ScanPlan {
  std::string name;  // of the data set
  Format format = {};
  std::uint64_t extent_bytes = 0;
  std::vector<PlannedObject> objects;
  BuildScratch scratch;
  // Creates the scanner of an object, which writes to `part`. Plan and part are borrowed for as
  // long as the scanner exists.
  std::unique_ptr<ObjectScanner> (*make_scanner)(const ScanPlan& plan, CatalogPart& part) =
      nullptr;
};

// The scan of one object. Use: call Feed with the object's bytes in order, then End once, then
// TakePart. Not thread-safe. Keeps failing after an error.
class ObjectScan {
 public:
  // The plan is borrowed.
  ObjectScan(const ScanPlan& plan, ObjectId object);

  // As ObjectScanner.
  Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut);
  std::uint64_t NeededFrom() const { return scanner_->NeededFrom(); }
  Status End(std::vector<CutExtent>& cut);
  // The object's part of the catalog, after a successful End.
  std::unique_ptr<CatalogPart> TakePart();

 private:
  Status Remember(Status status);

  std::unique_ptr<CatalogPart> part_;
  std::unique_ptr<ObjectScanner> scanner_;
  std::optional<Error> failure_;  // the first error
};

}  // namespace forebay::catalog
