// A device that fails again and again is not trusted with anything new. Extents are counted, not
// errors: one bad place is no bad device, however often it is tried.
#include "server/tier/ssd/device_health.h"

#include <vector>

#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::tier {
namespace {

constexpr std::int64_t kErrorWindowNs = 60'000'000'000;

}  // namespace

void DeviceHealth::CountError(const ExtentKey& key, std::int64_t now_ns) {
  ++errors_;
  std::erase_if(last_, [&](const LastError& error) {
    return error.key == key || now_ns - error.at_ns > kErrorWindowNs;
  });
  last_.push_back({.at_ns = now_ns, .key = key});
  if (last_.size() < limits::kTierErrorsBeforeRetire) return;
  if (!is_retired_) {
    log::Error("ssd tier: retired after device errors for {} extents within a minute: nothing "
               "more is written to it until a restart, its extents are still read; replace the "
               "SSD (tier.ssd.directory)", last_.size());
  }
  is_retired_ = true;
  last_.pop_front();  // once the tier is retired, nobody looks at the list, so it need not grow
}

}  // namespace forebay::tier
