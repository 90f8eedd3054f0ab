// Acquire demands each missing extent from the stager and counts arrivals. An extent can be evicted
// between its arrival and its pin; then it is demanded again, in ways that need less of the tiers
// each time (AccessFor), so that the request ends with its extents or an error. No thread waits.
#include "server/fetch/fetcher.h"

#include <optional>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::fetch {
namespace {

// The errors of a request whose extents could not be pinned. They name the settings to change.
Error TooShort(const Error& error) {
  return Error(ErrorCode::kUnavailable,
               error.message() +
                   ": the RAM tier is too small for the extents in use at once; raise "
                   "tier.ram.capacity, or lower batch, prefetch depth or order window");
}

// Not final: what evicts an extent before it is pinned is needed sooner, so the batch can have the
// extent once those before it are done.
Error TooSmall() {
  return Error(ErrorCode::kUnavailable,
               "extents are evicted before they are read: the tiers are too small for what is read "
               "at once; raise tier.ram.capacity or tier.ssd.capacity, use order 'block', or lower "
               "batch, prefetch depth or order window");
}

}  // namespace

struct Fetcher::Request {
  stage::Dataset* dataset = nullptr;
  std::vector<ExtentId> extents;
  Need need = Need::kRuns;
  Done done;
  // Guards what follows while extents are demanded. Before that, and once none is missing, one
  // thread has the request for itself, so the members are not annotated.
  Mutex mutex;
  std::vector<tier::ExtentRef> refs;
  std::vector<int> arrivals;
  std::vector<char> is_short;  // not 0: the tiers had no memory for the extent
  std::size_t missing = 0;
  std::optional<Error> error;
};

bool Fetcher::TryAcquire(const stage::Dataset& dataset, std::span<const ExtentId> extents,
                         Need need, std::vector<tier::ExtentRef>& refs, Where where) {
  // All keys are looked up in one call, which takes the cache's lock once for the batch.
  std::vector<tier::ExtentKey> keys;
  keys.reserve(extents.size());
  for (const ExtentId extent : extents) keys.push_back(dataset.key(extent));
  refs.resize(extents.size());
  cache_.Find(keys, refs);
  bool are_all = true;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (!refs[i] && need == Need::kSamples) refs[i] = stager_.pieces().FindReadable(keys[i]);
    are_all = are_all && (refs[i] || IsRemote(dataset, extents[i], where));
  }
  // Checked after the lookup, because a data set is marked outdated before other bytes are
  // published on a tier.
  return are_all && !dataset.is_outdated();
}

bool Fetcher::HasRowsElsewhere(const stage::Dataset& dataset, std::span<const ExtentId> extents,
                               std::span<const tier::ExtentRef> found) const {
  // Readers of an outdated data set get an error, from Acquire.
  if (dataset.is_outdated()) return false;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (!found[i] && IsRemote(dataset, extents[i], Where::kAnywhere)) return true;
  }
  return false;
}

void Fetcher::Acquire(stage::Dataset& dataset, std::vector<ExtentId> extents, Need need,
                      Done done, Where where) {
  auto request = std::make_shared<Request>();
  request->dataset = &dataset;
  request->extents = std::move(extents);
  request->need = need;
  request->done = std::move(done);
  request->arrivals.resize(request->extents.size());
  request->is_short.resize(request->extents.size());
  if (TryAcquire(dataset, request->extents, need, request->refs, where)) {
    request->done(std::move(request->refs));
    return;
  }
  if (dataset.is_outdated()) return request->done(dataset.Outdated());
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < request->refs.size(); ++i) {
    const bool is_missing =
        !request->refs[i] && !IsRemote(dataset, request->extents[i], where);
    if (is_missing) missing.push_back(i);
  }
  // All extents are here or remote: another node has come back since TryAcquire looked.
  if (missing.empty()) return request->done(std::move(request->refs));
  // Set before the first Demand, which may call back within the call and would otherwise see no
  // missing extents.
  request->missing = missing.size();
  for (const std::size_t index : missing) Bring(request, index);
}

// Chooses how to demand an extent, by how often it arrived and could not be pinned.
stage::Stager::Access Fetcher::AccessFor(const Request& request, std::size_t index) {
  using Access = stage::Stager::Access;
  const int arrivals = request.arrivals[index];
  if (request.is_short[index] != 0 && stage::GfsPieces::CanRead(*request.dataset)) {
    return Access::kPieces;
  }
  // An extent that vanished after it arrived (an SSD that accepts extents and cannot read them) is
  // fetched to RAM; if it vanishes from there too, it is read in pieces.
  if (arrivals > 1 && stage::GfsPieces::CanRead(*request.dataset)) return Access::kPieces;
  if (arrivals > 0) return Access::kInRam;
  return request.need == Need::kSamples ? Access::kPiecesIfNoHome : Access::kOnTier;
}

void Fetcher::Bring(const std::shared_ptr<Request>& request, std::size_t index) {
  const auto arrived = [this, request, index](const Status& status) {
    Arrived(request, index, status);
  };
  stager_.Demand(*request->dataset, request->extents[index], arrived,
                 AccessFor(*request, index));
}

void Fetcher::Arrived(const std::shared_ptr<Request>& request, std::size_t index,
                      const Status& status) {
  tier::ExtentRef ref;
  // Looked up without the request's lock: the cache has locks of its own, and arrivals of other
  // extents need not wait.
  if (status.has_value()) {
    const tier::ExtentKey& key = request->dataset->key(request->extents[index]);
    ref = cache_.Find(key);
    if (!ref) ref = stager_.pieces().Find(key);
  }
  bool again = false;
  bool last = false;
  {
    MutexLock lock(request->mutex);
    // The extent was evicted between its arrival and its pin, or memory was short for as long as
    // the stager waits. Other readers will unpin extents, so it is demanded again.
    const bool is_short =
        !status.has_value() && status.error().code() == ErrorCode::kResourceExhausted;
    const bool is_gone = status.has_value() && !ref;
    if (is_short) request->is_short[index] = 1;
    if (is_short || is_gone) {
      again = !request->error && ++request->arrivals[index] < limits::kExtentArrivalsMax;
    }
    if (!again && !request->error) {
      if (is_short) request->error = TooShort(status.error());
      else if (is_gone) request->error = TooSmall();
      else if (!status.has_value()) request->error = status.error();
    }
    if (!again) {
      request->refs[index] = std::move(ref);
      last = --request->missing == 0;
    }
  }
  // Recursion is bounded by kExtentArrivalsMax, also if every Demand answers within its call.
  if (again) {
    Bring(request, index);
  } else if (last) {
    // Asked once more at the end: an extent of a rebuilt data set has the same key and other
    // bytes.
    if (request->dataset->is_outdated()) {
      request->done(request->dataset->Outdated());
    } else if (request->error) {
      request->done(*request->error);
    } else {
      request->done(std::move(request->refs));
    }
  }
}

bool Fetcher::IsElsewhere(const stage::Dataset& dataset, ExtentId extent) const {
  if (!IsRemote(dataset, extent, Where::kAnywhere)) return false;
  // Nothing is read after this look-up, so it does not count as a hit of a tier.
  const tier::ExtentKey& key = dataset.key(extent);
  return !cache_.FindOn(key, tier::TierKind::kRam) && !cache_.FindOn(key, tier::TierKind::kSsd);
}

// Drops the copy that the reader used, and no other: the copy that lies on the tier now may be a
// new and sound one.
void Fetcher::ReportBad(const tier::ExtentRef& ref, const Error& found, std::int64_t now_ns) {
  if (ref->tier == tier::TierKind::kGfs) return stager_.pieces().Forget(ref, found);
  cache_.ReportBad(ref, found, now_ns);
}

}  // namespace forebay::fetch
