// The extent cache counts evictions in tier::EvictionLedger. The daemon's main thread calls Tick,
// which takes the counts once a minute and logs them.
#include "server/daemon/eviction_summary.h"

#include <utility>

#include <fmt/format.h>

#include "server/io/log.h"

namespace forebay::daemon {
namespace {

using tier::EvictionCause;
using tier::EvictionLedger;

constexpr std::int64_t kPeriodNs = 60'000'000'000;

const char* CauseText(EvictionCause cause) {
  switch (cause) {
    case EvictionCause::kRoom: return "to make space for others";
    case EvictionCause::kAsked: return "because of 'forebay evict', a rebuild or a failed pass";
    case EvictionCause::kDamaged: return "because they did not match their checksums";
  }
  return "for an unknown cause";
}

}  // namespace

EvictionSummary::EvictionSummary(EvictionLedger& ledger, const io::Clock& clock, NameOf name_of)
    : ledger_(ledger), clock_(clock), name_of_(std::move(name_of)), since_ns_(clock.NowNs()) {}

void EvictionSummary::Tick() {
  // Tick is called about once a second, so a period is a minute and at most a second more.
  if (clock_.NowNs() - since_ns_ >= kPeriodNs) Log();
}

void EvictionSummary::Log() {
  const std::int64_t now_ns = clock_.NowNs();
  const double seconds = static_cast<double>(now_ns - since_ns_) / 1e9;
  // The lines say how many seconds they cover, because the last one, at the daemon's end, covers
  // less than a minute.
  since_ns_ = now_ns;
  // One line for each data set, tier and cause, however many extents were evicted.
  for (const auto& [key, sum] : ledger_.Take()) {
    // Segments of an earlier daemon may belong to a data set that is no longer configured.
    std::string name = name_of_(key.dataset);
    if (name.empty()) name = fmt::format("(not configured: {:016x})", key.dataset);
    // Evictions for room and on request are normal. A damaged copy means that a device or memory is
    // failing.
    const auto level =
        key.cause == EvictionCause::kDamaged ? log::Level::kWarn : log::Level::kInfo;
    log::At(level,
            "data set '{}': {} extents left tier {} within {:.0f} s {}; {} of them are "
            "now on no tier",
            name, sum.extents, key.tier == tier::TierKind::kRam ? "ram" : "ssd", seconds,
            CauseText(key.cause), sum.gone);
  }
}

}  // namespace forebay::daemon
