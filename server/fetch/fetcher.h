// Fetcher: "bring me these extents". RAM and SSD answer at once; what is missing is asked of its
// owner, or staged. One read per extent is under way at a time, whoever asks (single flight). An
// extent that no tier can hold is read from the GFS in pieces.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/peer_source.h"
#include "server/stage/stager.h"
#include "server/tier/extent_cache.h"

namespace forebay::fetch {

// Thread-safe; everything passed in is borrowed.
class Fetcher {
 public:
  Fetcher(tier::ExtentCache& cache, stage::Stager& stager, PeerSource& peers)
      : cache_(cache), stager_(stager), peers_(peers) {}

  // What a reader needs of its extents.
  enum class Need : std::uint8_t {
    kRuns,     // most of their samples, soon: an extent is worth bringing as a whole
    kSamples,  // a sample here and there: an extent without a home is read in pieces
  };
  // The extents, where every one of them is there now; the references pin them. Of a data set that
  // is outdated (Dataset::is_outdated) none is, and Acquire says kFailedPrecondition.
  bool TryAcquire(const stage::Dataset& dataset, std::span<const ExtentId> extents, Need need,
                  std::vector<tier::ExtentRef>& refs);

  // Makes every extent resident, or readable in pieces (its reference is on kGfs then), and calls
  // `done` once (from this call where they are), with the references, in order, or the first
  // error. Extents pinned by the partial result stay pinned until `done`, so that a set that fits
  // is always obtained. An extent for which the tiers have no room, or which is evicted again
  // before it can be pinned, is read in pieces; where its data set is compressed at staging it
  // cannot be, and that is kUnavailable (memory was short) or kResourceExhausted (too small).
  using Done = std::function<void(Result<std::vector<tier::ExtentRef>>)>;
  void Acquire(stage::Dataset& dataset, std::vector<ExtentId> extents, Need need, Done done);

  // After a read of `ref` returned wrong bytes: drops that copy, or forgets its checksums where it
  // was read in pieces, so that the next Acquire fetches the extent anew. Readers of one bad copy
  // may all report it; what replaced it stays.
  void ReportBad(const tier::ExtentRef& ref, const Error& found, std::int64_t now_ns);

 private:
  struct Request;
  static stage::Stager::Access AccessFor(const Request& request, std::size_t index);
  void Bring(const std::shared_ptr<Request>& request, std::size_t index);
  void Arrived(const std::shared_ptr<Request>& request, std::size_t index,
               const Status& status);

  tier::ExtentCache& cache_;
  stage::Stager& stager_;
  PeerSource& peers_;
};

}  // namespace forebay::fetch
