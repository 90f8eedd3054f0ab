// Asks the processor at every call: __builtin_cpu_supports reads a variable that libgcc fills at
// program start, so a call costs a few nanoseconds.
#include "compress/decode/isa.h"

#include <array>
#include <cstddef>

namespace forebay::compress {
namespace {

#ifdef FOREBAY_X86_KERNELS
// Everything that a file `*_avx512.cc` is compiled with (CMakeLists.txt), except VNNI, for which
// PredictorRunOf asks by itself.
bool HaveAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("gfni") &&
         __builtin_cpu_supports("bmi2");
}

bool HaveAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt"); }
#endif

}  // namespace

Isa BestIsa() {
#ifdef FOREBAY_X86_KERNELS
  if (HaveAvx512()) return Isa::kAvx512;
  if (HaveAvx2()) return Isa::kAvx2;
#endif
  return Isa::kScalar;
}

std::span<const Isa> AvailableIsas() {
  static constexpr std::array kAll = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};
  return std::span(kAll).first(static_cast<std::size_t>(BestIsa()) + 1);
}

}  // namespace forebay::compress
