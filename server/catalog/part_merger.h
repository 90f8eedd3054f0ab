// PartMerger: makes the catalog of a data set from the parts of its objects. The parts may come in
// any order, and from any node: the catalog is the same to the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/sample_records.h"
#include "server/catalog/scan_plan.h"

namespace forebay::catalog {

// Use: call Add with the part of each object, then Write. Memory: 24 bytes per extent while parts
// are added, 64 more in Write, and what BuildScratch allows. Not thread-safe. Unusable after an
// error.
class PartMerger {
 public:
  // The plan is borrowed.
  explicit PartMerger(const ScanPlan& plan);

  // Adds the part of an object, at most once. kResourceExhausted: the objects up to some object
  // exceed a limit of the data set, once the parts of all of them are there; the error names that
  // object.
  Status Add(ObjectId object, const CatalogPart& part);
  bool Has(ObjectId object) const { return entries_[object.value()].is_there; }
  // The number of objects whose parts are missing.
  std::size_t missing() const { return missing_; }
  // Writes the part of an object that has been added, for another node.
  Status Encode(ObjectId object, ImageSink& sink) const;
  // Makes the catalog. To be called when no part is missing.
  Result<std::shared_ptr<const Catalog>> Write() const;

 private:
  struct Entry {
    bool is_there = false;
    std::vector<PartField> fields;
    std::vector<PartExtent> extents;
    RecordRange records;  // in records_
  };
  Status CheckLimits();

  const ScanPlan& plan_;
  std::vector<Entry> entries_;  // by object
  SampleRecords records_;
  std::size_t missing_;
  // The parts of all objects before checked_ are there, and have these fields and extents.
  std::size_t checked_ = 0;
  std::set<std::string> fields_;
  std::uint64_t extent_count_ = 0;
};

}  // namespace forebay::catalog
