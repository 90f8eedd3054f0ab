// LibTorch's autocast, which chooses per operator whether it computes in bfloat16, switched on for
// the lifetime of a scope and with an empty cache at its end.
#include "trainer/exec/stage/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

// Version 2.4 has one set of calls for all devices.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool IsOn(torch::DeviceType device) { return at::autocast::is_autocast_enabled(device); }
void Switch(torch::DeviceType device, bool on) {
  at::autocast::set_autocast_dtype(device, at::kBFloat16);
  at::autocast::set_autocast_enabled(device, on);
}
#else
bool IsOn(torch::DeviceType device) {
  return device == torch::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
void Switch(torch::DeviceType device, bool on) {
  if (device == torch::kCPU) {
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    at::autocast::set_cpu_enabled(on);
  } else {
    at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
    at::autocast::set_enabled(on);
  }
}
#endif

}  // namespace

AutocastScope::AutocastScope(Precision precision, torch::DeviceType device)
    : casts_(precision == Precision::kBf16), device_(device) {
  if (!casts_) return;
  // Scopes do not nest: the destructor would switch off what an outer scope has switched on.
  FOREBAY_CHECK(!IsOn(device_));
  Switch(device_, true);
}

AutocastScope::~AutocastScope() {
  if (!casts_) return;
  Switch(device_, false);
  // Casts of weights are cached, and the update changes the weights.
  at::autocast::clear_cache();
}

}  // namespace forebay::train
