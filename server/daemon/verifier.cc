// The extents are listed first and then checked one by one. Those that are evicted in between count
// as done; those that are staged in between are not checked.
#include "server/daemon/verifier.h"

#include <utility>

#include <fmt/format.h>

#include "server/daemon/background_scrubber.h"

namespace forebay::daemon {
Status Verifier::Run(const std::vector<stage::Dataset*>& datasets, const Progress& progress) {
  FOREBAY_ASSIGN(const auto queue, backend_.CreateQueue({.depth = 16}));
  // The background scrubber's checks, without its rate: somebody waits for the result. Rate 0 means
  // no limit.
  FOREBAY_ASSIGN(tier::Scrubber scrubber,
                 tier::Scrubber::Create(cache_, clock_, PiecesOfDatasets(datasets),
                                        {.bytes_per_second = 0}));
  struct Work {
    stage::Dataset* dataset;
    tier::ExtentKey key;
    tier::TierKind tier;
  };
  std::vector<Work> work;
  for (stage::Dataset* dataset : datasets) {
    // Its pieces are not known, so nothing of it can be checked.
    if (!dataset->catalog()) continue;
    for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
      for (const tier::ExtentKey& key : cache_.Resident(kind)) {
        if (key.dataset == dataset->hash()) work.push_back({dataset, key, kind});
      }
    }
  }
  VerifyCounts counts;
  counts.extents_total = work.size();
  for (const Work& item : work) {
    // At most one for each extent, and sent with the progress of that extent, so the list never
    // grows.
    std::vector<std::string> errors;
    // FindOn checks the copy on this tier (Find returns the fastest one) and counts no hit.
    const tier::ExtentRef extent = cache_.FindOn(item.key, item.tier);
    ++counts.extents_done;
    if (extent) {
      const Status checked = scrubber.ScrubExtent(extent, *queue);
      counts.bytes_done += extent->image_bytes;
      if (!checked.has_value()) {
        ++counts.extents_bad;
        const bool dropped = scrubber.DropIfDamaged(extent, checked);
        errors.push_back(fmt::format("data set '{}', extent {} on {}: {}{}",
                                     item.dataset->name(), tier::KeyText(item.key),
                                     item.tier == tier::TierKind::kRam ? "ram" : "ssd",
                                     checked.error().message(),
                                     dropped ? "; the copy was dropped"
                                             : "; it could not be checked, and was kept"));
      }
    }
    // The receiver is gone, or the daemon stops.
    if (!progress(counts, std::move(errors))) {
      return Error(ErrorCode::kCancelled, "verification was stopped");
    }
  }
  counts.done = true;
  progress(counts, {});
  return {};
}

}  // namespace forebay::daemon
