#include "trainer/exec/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool IsOn() { return at::autocast::is_autocast_enabled(at::kCPU); }
void Switch(bool on) {
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, on);
}
#else
bool IsOn() { return at::autocast::is_cpu_enabled(); }
void Switch(bool on) {
  at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
  at::autocast::set_cpu_enabled(on);
}
#endif

}  // namespace

AutocastScope::AutocastScope(Precision precision) : casts_(precision == Precision::kBf16) {
  if (!casts_) return;
  FOREBAY_CHECK(!IsOn());
  Switch(true);
}

AutocastScope::~AutocastScope() {
  if (!casts_) return;
  Switch(false);
  at::autocast::clear_cache();
}

}  // namespace forebay::train
