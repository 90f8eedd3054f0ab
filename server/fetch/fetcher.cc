#include "server/fetch/fetcher.h"

#include <mutex>
#include <optional>
#include <utility>

#include "proto/contract/limits.h"

namespace forebay::fetch {

struct Fetcher::Request {
  stage::Dataset* dataset = nullptr;
  std::vector<ExtentId> extents;
  Done done;
  std::mutex mutex;
  std::vector<tier::ExtentRef> refs;
  std::vector<int> arrivals;
  std::size_t missing = 0;
  std::optional<Error> error;
};

bool Fetcher::TryAcquire(const stage::Dataset& dataset, std::span<const ExtentId> extents,
                         std::vector<tier::ExtentRef>& refs) {
  std::vector<tier::ExtentKey> keys;
  keys.reserve(extents.size());
  for (const ExtentId extent : extents) keys.push_back(dataset.key(extent));
  refs.resize(extents.size());
  cache_.Find(keys, refs);
  for (const tier::ExtentRef& ref : refs) {
    if (!ref) return false;
  }
  return true;
}

void Fetcher::Acquire(stage::Dataset& dataset, std::vector<ExtentId> extents, Done done) {
  auto request = std::make_shared<Request>();
  request->dataset = &dataset;
  request->extents = std::move(extents);
  request->done = std::move(done);
  request->arrivals.resize(request->extents.size());
  if (TryAcquire(dataset, request->extents, request->refs)) {
    request->done(std::move(request->refs));
    return;
  }
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < request->refs.size(); ++i) {
    if (!request->refs[i]) missing.push_back(i);
  }
  request->missing = missing.size();
  for (const std::size_t index : missing) Bring(request, index);
}

void Fetcher::Bring(const std::shared_ptr<Request>& request, std::size_t index) {
  stage::Dataset& dataset = *request->dataset;
  const ExtentId extent = request->extents[index];
  // What came and was gone again (an SSD that takes extents and cannot give them back) goes to
  // RAM, where it is found.
  const bool in_ram = request->arrivals[index] > 0;
  auto stage_it = [this, request, index, &dataset, extent, in_ram] {
    const auto arrived = [this, request, index](const Status& status) {
      Arrived(request, index, status);
    };
    stager_.Demand(dataset, extent, arrived, in_ram);
  };
  const std::vector<plan::Node> nodes = peers_.Nodes();
  const NodeRank owner = plan::OwnerOf(dataset.hash(), extent, nodes);
  if (owner == peers_.self()) {
    stage_it();
    return;
  }
  peers_.Bring(owner, dataset.hash(), extent,
               [this, request, index, stage_it](const Status& status) {
                 // A lost owner is survivable: this node reads the extent itself.
                 if (status.has_value()) {
                   Arrived(request, index, status);
                 } else {
                   stage_it();
                 }
               });
}

void Fetcher::Arrived(const std::shared_ptr<Request>& request, std::size_t index,
                      const Status& status) {
  tier::ExtentRef ref;
  if (status.has_value()) ref = cache_.Find(request->dataset->key(request->extents[index]));
  bool again = false;
  bool last = false;
  {
    std::lock_guard lock(request->mutex);
    if (status.has_value() && !ref) {
      // Evicted between its arrival and its pin; again and again means that the tiers are
      // thrashing, and the reader is told.
      again = ++request->arrivals[index] < limits::kExtentArrivalsMax;
      if (!again && !request->error) {
        request->error = Error(ErrorCode::kResourceExhausted,
                               "extents are evicted faster than they are read: the tiers are too "
                               "small for this order (use mode 'block', or give them more)");
      }
    } else if (!status.has_value() && status.error().code() == ErrorCode::kResourceExhausted) {
      // Memory was short for as long as the stager waits; others' pins end, so it asks again.
      again = !request->error && ++request->arrivals[index] < limits::kExtentArrivalsMax;
      if (!again && !request->error) {
        request->error = Error(ErrorCode::kUnavailable,
                               status.error().message() +
                                   ": the RAM tier is too small for what is read at once; give "
                                   "tier.ram.capacity more, or lower batch, depth or window");
      }
    } else if (!status.has_value() && !request->error) {
      request->error = status.error();
    }
    if (!again) {
      request->refs[index] = std::move(ref);
      last = --request->missing == 0;
    }
  }
  if (again) {
    Bring(request, index);
  } else if (last) {
    if (request->error) {
      request->done(*request->error);
    } else {
      request->done(std::move(request->refs));
    }
  }
}

void Fetcher::ReportBad(const tier::ExtentRef& ref, const Error& found, std::int64_t now_ns) {
  if (ref->tier == tier::TierKind::kRam) {
    if (cache_.FindOn(ref->key, tier::TierKind::kRam) == ref) cache_.ReportBadRam(ref->key);
    return;
  }
  const tier::ExtentRef now = cache_.FindOn(ref->key, tier::TierKind::kSsd);
  if (now && now->segment != ref->segment) return;
  cache_.ReportBadSegment(ref->key, found, now_ns);
}

}  // namespace forebay::fetch
