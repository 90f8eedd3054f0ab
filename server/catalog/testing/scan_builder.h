// ScanBuilder: test support that scans a whole data set of a format without an index, object after
// object, and makes its catalog, as a node does that is alone in its job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "server/catalog/dataset_source.h"
#include "server/catalog/part_merger.h"
#include "server/catalog/scan_plan.h"

namespace forebay::catalog {

// Not thread-safe. Keeps failing after an error.
class ScanBuilder {
 public:
  explicit ScanBuilder(ScanPlan plan);

  const std::vector<PlannedObject>& objects() const { return plan_.objects; }
  // As ObjectScan, for the current object. The extents that are appended to `cut` have their
  // numbers and first samples in the data set.
  Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut);
  std::uint64_t NeededFrom() const { return scan_ ? scan_->NeededFrom() : 0; }
  // Ends the current object; the next Feed is for the next object.
  Status EndObject(std::vector<CutExtent>& cut);
  // Makes the catalog. To be called after the last object has ended.
  Result<std::shared_ptr<const Catalog>> Finish();

 private:
  void BeginObject();
  void Number(std::size_t first, std::vector<CutExtent>& cut);
  Status Remember(Status status);

  const ScanPlan plan_;
  PartMerger merger_{plan_};
  std::uint32_t object_ = 0;
  std::optional<ObjectScan> scan_;  // of the current object; unset after the last one
  std::optional<Error> failure_;    // the first error
  std::uint32_t extents_before_ = 0;  // extents and samples of the objects before
  std::uint64_t samples_before_ = 0;
  std::uint32_t extents_ = 0;  // of the current object, too
  std::uint64_t samples_ = 0;
};

Result<std::unique_ptr<ScanBuilder>> CreateScanBuilder(io::Directory& root,
                                                       const DatasetSource& source,
                                                       const BuildScratch& scratch = {});

}  // namespace forebay::catalog
