// A PartMerger behind a mutex, and the first object that was refused. Every node waits for all
// objects before a refused one, so all nodes report the same error, which is that of a node that
// scans all objects in order.
#include "server/stage/cataloguing/object_scans.h"

#include <utility>

namespace forebay::stage {

ObjectScans::ObjectScans(catalog::ScanPlan plan, std::vector<std::uint64_t> group_keys)
    : plan_(std::move(plan)),
      group_keys_(std::move(group_keys)),
      scanned_here_(plan_.objects.size(), false),
      needed_(plan_.objects.size()) {}

Status ObjectScans::Add(ObjectId object, const catalog::CatalogPart& part) {
  const MutexLock lock(mutex_);
  return merger_.Add(object, part);
}

void ObjectScans::Refuse(ObjectId object, const Error& error) {
  const MutexLock lock(mutex_);
  if (object.value() >= needed_) return;
  needed_ = object.value();
  refused_ = error;
}

std::vector<ObjectId> ObjectScans::Missing() const {
  std::vector<ObjectId> missing;
  const MutexLock lock(mutex_);
  for (std::uint32_t i = 0; i < needed_; ++i) {
    if (!merger_.Has(ObjectId(i))) missing.push_back(ObjectId(i));
  }
  return missing;
}

Result<std::shared_ptr<const catalog::Catalog>> ObjectScans::Write() const {
  const MutexLock lock(mutex_);
  if (refused_) return *refused_;
  return merger_.Write();
}

Result<bool> ObjectScans::Encode(ObjectId object, catalog::ImageSink& part) {
  const MutexLock lock(mutex_);
  if (merger_.Has(object)) {
    FOREBAY_TRY(merger_.Encode(object, part));
    return true;
  }
  if (object.value() >= needed_) return *refused_;
  wanted_.insert(object);
  return false;
}

bool ObjectScans::IsWanted(ObjectId object) const {
  const MutexLock lock(mutex_);
  return wanted_.contains(object);
}

}  // namespace forebay::stage
