// ObjectScan adds to a format's scanner what all formats need: an object that was refused stays
// refused, whatever is fed to it afterwards.
#include "server/catalog/scan_plan.h"

#include <utility>

#include "proto/contract/check.h"

namespace forebay::catalog {

ObjectScan::ObjectScan(const ScanPlan& plan, ObjectId object)
    : part_(std::make_unique<CatalogPart>(plan.objects[object.value()], plan.scratch)),
      scanner_(plan.make_scanner(plan, *part_)) {}

Status ObjectScan::Remember(Status status) {
  if (!status.has_value()) failure_ = status.error();
  return status;
}

Status ObjectScan::Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) {
  // After an error the scanner's state fits no offset any more, so it sees no further bytes.
  if (failure_.has_value()) return *failure_;
  return Remember(scanner_->Feed(bytes, cut));
}

Status ObjectScan::End(std::vector<CutExtent>& cut) {
  if (failure_.has_value()) return *failure_;
  return Remember(scanner_->End(cut));
}

std::unique_ptr<CatalogPart> ObjectScan::TakePart() {
  FOREBAY_CHECK(!failure_.has_value());
  scanner_.reset();  // it refers to the part
  return std::move(part_);
}

}  // namespace forebay::catalog
