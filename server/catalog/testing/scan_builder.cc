// One ObjectScan after another, whose parts go to one PartMerger.
#include "server/catalog/testing/scan_builder.h"

#include <utility>

#include "proto/contract/printable.h"

namespace forebay::catalog {

ScanBuilder::ScanBuilder(ScanPlan plan) : plan_(std::move(plan)) { BeginObject(); }

void ScanBuilder::BeginObject() {
  scan_.reset();
  extents_before_ = extents_;
  samples_before_ = samples_;
  if (object_ < plan_.objects.size()) scan_.emplace(plan_, ObjectId(object_));
}

// From the numbers within the object to those in the data set.
void ScanBuilder::Number(std::size_t first, std::vector<CutExtent>& cut) {
  for (std::size_t i = first; i < cut.size(); ++i) {
    cut[i].number = ExtentId(extents_before_ + cut[i].number.value());
    cut[i].info.first_object = ObjectId(object_);
    cut[i].info.first_sample = SampleId(samples_before_ + cut[i].info.first_sample.value());
    for (Range& piece : cut[i].pieces) piece.extent = cut[i].number;
    extents_ = cut[i].number.value() + 1;
    samples_ = cut[i].info.first_sample.value() + cut[i].info.sample_count;
  }
}

Status ScanBuilder::Remember(Status status) {
  if (!status.has_value()) failure_ = status.error();
  return status;
}

Status ScanBuilder::Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) {
  if (failure_) return *failure_;
  if (!scan_) return Error(ErrorCode::kFailedPrecondition, "every planned object has been fed");
  const std::size_t first = cut.size();
  const Status fed = scan_->Feed(bytes, cut);
  Number(first, cut);
  return Remember(fed);
}

Status ScanBuilder::EndObject(std::vector<CutExtent>& cut) {
  if (failure_) return *failure_;
  if (!scan_) return Error(ErrorCode::kFailedPrecondition, "every planned object has ended");
  const std::size_t first = cut.size();
  const Status ended = scan_->End(cut);
  Number(first, cut);
  FOREBAY_TRY(Remember(ended));
  FOREBAY_TRY(Remember(merger_.Add(ObjectId(object_), *scan_->TakePart())));
  ++object_;
  BeginObject();
  return {};
}

Result<std::shared_ptr<const Catalog>> ScanBuilder::Finish() {
  if (failure_) return *failure_;
  if (scan_) {
    return Error(ErrorCode::kFailedPrecondition,
                 Quoted(plan_.objects[object_].path) + " has not been fed to its end");
  }
  return merger_.Write();
}

Result<std::unique_ptr<ScanBuilder>> CreateScanBuilder(io::Directory& root,
                                                       const DatasetSource& source,
                                                       const BuildScratch& scratch) {
  FOREBAY_ASSIGN(ScanPlan plan, PlanScan(root, source, scratch));
  return std::make_unique<ScanBuilder>(std::move(plan));
}

}  // namespace forebay::catalog
