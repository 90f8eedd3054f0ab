// Only the step that ends can become the longest, so one comparison for each is enough.
#include "server/daemon/stop_steps.h"

#include <fmt/format.h>

namespace forebay::daemon {
namespace {

constexpr std::int64_t kLongNs = 1'000'000'000;

}  // namespace

void StopSteps::Begin(const char* what) {
  const std::int64_t now_ns = clock_.NowNs();
  if (now_ns - began_ns_ > longest_ns_ && *now_ != '\0') {
    longest_ = now_;
    longest_ns_ = now_ns - began_ns_;
  }
  now_ = what;
  began_ns_ = now_ns;
}

std::string StopSteps::Longest() const {
  if (longest_ns_ < kLongNs) return "";
  return fmt::format(" (the longest wait, {:.1f} s, for {})",
                     static_cast<double>(longest_ns_) / 1e9, longest_);
}

}  // namespace forebay::daemon
