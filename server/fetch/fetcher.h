// Fetcher: pins extents for a reader. Extents in RAM or on SSD are pinned at once; missing ones are
// staged first, unless the caller gets their samples from the node that owns them. An extent is
// read at most once at a time for all readers (single flight). Extents that no tier can hold are
// read from the GFS in pieces.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/row_source.h"
#include "server/plan/membership.h"
#include "server/stage/stager.h"
#include "server/tier/extent_cache.h"

namespace forebay::fetch {

// Thread-safe; everything passed in is borrowed.
class Fetcher {
 public:
  Fetcher(tier::ExtentCache& cache, stage::Stager& stager, const plan::Membership& nodes)
      : cache_(cache), stager_(stager), nodes_(nodes) {}

  // Which extents a reader wants pinned.
  enum class Where : std::uint8_t {
    kHere,      // all
    kAnywhere,  // all but those that other nodes supply rows of: their references are null
  };
  // If every extent is there now, returns true and fills `refs`, which pin them. Always false for
  // an outdated data set (Dataset::is_outdated); Acquire then returns kFailedPrecondition.
  bool TryAcquire(const stage::Dataset& dataset, std::span<const ExtentId> extents, Need need,
                  std::vector<tier::ExtentRef>& refs, Where where = Where::kHere);

  // Call after TryAcquire(kAnywhere) returned false: whether other nodes supply rows of some of the
  // extents. They can be asked while those that this node reads itself are on their way.
  bool HasRowsElsewhere(const stage::Dataset& dataset, std::span<const ExtentId> extents,
                        std::span<const tier::ExtentRef> found) const;

  // Makes every extent resident, or readable in pieces (its reference is then on tier kGfs), and
  // calls `done` once, with the references in order, or the first error; within this call if all
  // are there. Extents that have arrived stay pinned until `done`, so that a set that fits in the
  // tiers is always obtained. An extent for which there is no memory, or which is evicted again
  // before it can be pinned, is read in pieces. If its data set is compressed at staging, this is
  // impossible: kUnavailable (memory was short) or kResourceExhausted (the tiers are too small).
  using Done = std::function<void(Result<std::vector<tier::ExtentRef>>)>;
  void Acquire(stage::Dataset& dataset, std::vector<ExtentId> extents, Need need, Done done,
               Where where = Where::kHere);

  // Whether another node supplies the rows of the extent unless it is copied to this one: that node
  // reads it from the GFS, and no tier of this one has it.
  bool IsElsewhere(const stage::Dataset& dataset, ExtentId extent) const;
  std::size_t node_count() const { return nodes_.nodes().size(); }

  // Call after a read of `ref` returned wrong bytes: drops that copy, or its checksums if it was
  // read in pieces, so that the next Acquire fetches the extent again. If several readers report
  // one bad copy, the copy that replaced it stays.
  void ReportBad(const tier::ExtentRef& ref, const Error& found, std::int64_t now_ns);

 private:
  struct Request;
  bool IsRemote(const stage::Dataset& dataset, ExtentId extent, Where where) const {
    return where == Where::kAnywhere && !dataset.is_replaced() &&
           !nodes_.is_alone() && !nodes_.Reads(dataset.group_key(extent));
  }
  static stage::Stager::Access AccessFor(const Request& request, std::size_t index);
  void Bring(const std::shared_ptr<Request>& request, std::size_t index);
  void Arrived(const std::shared_ptr<Request>& request, std::size_t index,
               const Status& status);

  tier::ExtentCache& cache_;
  stage::Stager& stager_;
  const plan::Membership& nodes_;
};

}  // namespace forebay::fetch
