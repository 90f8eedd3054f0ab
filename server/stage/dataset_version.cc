// The flags and links are atomic, because readers ask for them without a lock. The mutex orders
// them with the number of extents that are being published: a mark that is set with the mutex held
// is seen by every thread that begins to publish later, and the threads that began before it are
// waited for.
#include "server/stage/dataset_version.h"

#include <fmt/format.h>

namespace forebay::stage {

void DatasetVersion::Succeed(DatasetVersion& replaced) {
  // Plain pointers: a Dataset lives as long as the daemon (DatasetTable).
  predecessor_ = &replaced;
  replaced.successor_ = this;
  for (DatasetVersion* before = &replaced; before != nullptr; before = before->predecessor_) {
    const MutexLock lock(before->mutex_);
    ++before->successors_;
    // The caller evicts the copies of these versions next, and must miss none.
    while (before->publishing_ > 0) before->has_published_.Wait(before->mutex_);
  }
}

Status DatasetVersion::ShareRead(const tier::ExtentKey& key, std::uint64_t image_checksum,
                                 std::uint32_t successors) {
  for (DatasetVersion* before = predecessor_; before != nullptr; before = before->predecessor_) {
    if (before->first_reads_.Differs(key, image_checksum)) before->is_outdated_ = true;
  }
  // Bytes that must not become the first read of the version that replaced this one: an outdated
  // version may have got them from a node that was not rebuilt, and what was read before the
  // rebuild may be what the rebuild is to replace.
  if (successors != successors_ || (successors > 0 && is_outdated_)) return Outdated();
  // No further than the read may go: another rebuild may begin now.
  DatasetVersion* after = successor_;
  for (std::uint32_t i = 0; i < successors; ++i, after = after->successor_) {
    // The difference is not counted as a mismatch of `after`, which has read its objects correctly.
    if (after->first_reads_.Differs(key, image_checksum)) {
      is_outdated_ = true;
      return Outdated();
    }
    // If `after` has not read this extent yet, its later read is compared with this one.
    static_cast<void>(after->first_reads_.Compare(key, image_checksum));
  }
  return {};
}

// With the mutex, so that whoever begins to publish later sees the mark.
void DatasetVersion::MarkOutdated() {
  const MutexLock lock(mutex_);
  is_outdated_ = true;
  while (publishing_ > 0) has_published_.Wait(mutex_);
}

bool DatasetVersion::BeginPublishing(std::uint32_t successors) {
  const MutexLock lock(mutex_);
  if (is_outdated_ || successors != successors_) return false;
  ++publishing_;
  return true;
}

void DatasetVersion::EndPublishing() {
  const MutexLock lock(mutex_);
  --publishing_;
  has_published_.NotifyAll();
}

Error DatasetVersion::Outdated() const {
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("data set '{}' was rebuilt from objects whose bytes may have changed; "
                           "open the stream again", name_));
}

}  // namespace forebay::stage
