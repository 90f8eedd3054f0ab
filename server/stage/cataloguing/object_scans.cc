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

void ObjectScans::Refuse(ObjectId object, const Error& error,
                         std::optional<std::int64_t> reported_ns) {
  const MutexLock lock(mutex_);
  if (object.value() >= needed_) return;
  needed_ = object.value();
  refused_ = CatalogFailure{.error = error,
                            .at_ns = reported_ns.value_or(0),
                            .is_reported = reported_ns.has_value()};
}

// With objects missing, the attempt has failed for a reason of its own.
std::optional<std::int64_t> ObjectScans::ReportedNs() const {
  const MutexLock lock(mutex_);
  if (!refused_ || !refused_->is_reported || !MissingLocked().empty()) return std::nullopt;
  return refused_->at_ns;
}

std::vector<ObjectId> ObjectScans::Missing() const {
  const MutexLock lock(mutex_);
  return MissingLocked();
}

std::vector<ObjectId> ObjectScans::MissingLocked() const {
  std::vector<ObjectId> missing;
  for (std::uint32_t i = 0; i < needed_; ++i) {
    if (!merger_.Has(ObjectId(i))) missing.push_back(ObjectId(i));
  }
  return missing;
}

Result<std::shared_ptr<const catalog::Catalog>> ObjectScans::Write() const {
  const MutexLock lock(mutex_);
  if (refused_) return refused_->error;
  return merger_.Write();
}

Result<PartAnswer> ObjectScans::Encode(ObjectId object, catalog::ImageSink& part,
                                       std::int64_t now_ns) {
  const MutexLock lock(mutex_);
  if (merger_.Has(object)) {
    FOREBAY_TRY(merger_.Encode(object, part));
    return PartAnswer{.is_there = true, .failure = {}};
  }
  if (object.value() >= needed_) {
    // A failure that this node has found itself is as good as new while the attempt lasts.
    if (!refused_->is_reported) return PartAnswer{.failure = PartFailure{.error = refused_->error}};
    if (!refused_->IsOld(now_ns)) {
      return PartAnswer{.failure = PartFailure{.error = refused_->error,
                                               .age_ns = refused_->AgeNs(now_ns),
                                               .is_reported = true}};
    }
  }
  wanted_.insert(object);
  return PartAnswer();
}

bool ObjectScans::IsWanted(ObjectId object) const {
  const MutexLock lock(mutex_);
  return wanted_.contains(object);
}

}  // namespace forebay::stage
