// ObjectScans: the state of a data set of a format without an index while it is catalogued: the
// catalog parts of the objects that were scanned, here or by other nodes of the job. Cataloguer
// adds parts; threads that answer other nodes read them at the same time (LocalExtents). It exists
// until the catalog is complete or cataloguing has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/catalog.h"
#include "server/catalog/part_merger.h"
#include "server/catalog/scan_plan.h"
#include "server/stage/catalog_failure.h"
#include "server/stage/growing_pause.h"
#include "server/stage/part_source.h"

namespace forebay::stage {

// Thread-safe, but one thread at a time catalogues.
class ObjectScans {
 public:
  // `group_keys`: of each object (extent_groups.h); empty in a job of one node.
  ObjectScans(catalog::ScanPlan plan, std::vector<std::uint64_t> group_keys);

  const catalog::ScanPlan& plan() const { return plan_; }
  std::uint64_t group_key(ObjectId object) const { return group_keys_[object.value()]; }

  // Adds the part of an object that has none yet. Errors: PartMerger::Add.
  Status Add(ObjectId object, const catalog::CatalogPart& part);
  // The bytes of an object were refused, here or by the node that has scanned it. The data set then
  // has the error of the first object that is refused. So objects after this one are not needed any
  // more, but those before it still are. `reported_ns`: another node has reported the failure,
  // which was found then.
  void Refuse(ObjectId object, const Error& error,
              std::optional<std::int64_t> reported_ns = std::nullopt);
  // The objects whose parts are needed and missing, in order.
  std::vector<ObjectId> Missing() const;
  // Makes the catalog, or returns the error of the first object that was refused. To be called when
  // nothing is missing.
  Result<std::shared_ptr<const catalog::Catalog>> Write() const;

  // If the attempt fails because of what another node has reported: when that was found.
  std::optional<std::int64_t> ReportedNs() const;

  // Writes the part of an object for another node. If the part is not there yet, IsWanted is true
  // of the object from now on. There is a failure if the part will never be there, because an
  // object was refused. An old failure that was reported (CatalogFailure::IsOld) is not passed on:
  // this attempt will end soon, and the node that asks then hears of the next one.
  Result<PartAnswer> Encode(ObjectId object, catalog::ImageSink& part, std::int64_t now_ns);
  // Whether another node waits until this one has the part.
  bool IsWanted(ObjectId object) const;

  // --- for the thread that catalogues ---------------------------------------------------------
  // The nodes that have not supplied the part of an object, or a wrong one.
  std::vector<NodeRank>& asked(ObjectId object) { return asked_[object]; }
  // The time until other nodes should be asked again, which grows from call to call.
  std::int64_t NextPauseNs() { return pause_.NextNs(); }
  // Other nodes have supplied something, so the next pause is short again.
  void ShortenPauses() { pause_.Shorten(); }
  // The objects that this node has scanned.
  std::vector<bool>& scanned_here() { return scanned_here_; }

 private:
  std::vector<ObjectId> MissingLocked() const FOREBAY_REQUIRES(mutex_);

  const catalog::ScanPlan plan_;
  const std::vector<std::uint64_t> group_keys_;
  std::map<ObjectId, std::vector<NodeRank>> asked_;
  std::vector<bool> scanned_here_;
  GrowingPause pause_;

  mutable Mutex mutex_;  // held while a part is copied to or from a table
  catalog::PartMerger merger_ FOREBAY_GUARDED_BY(mutex_){plan_};
  std::size_t needed_ FOREBAY_GUARDED_BY(mutex_);  // objects before this one are needed
  // The failure of object needed_. Its `at_ns` is only set if another node has reported it.
  std::optional<CatalogFailure> refused_ FOREBAY_GUARDED_BY(mutex_);
  std::set<ObjectId> wanted_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage
