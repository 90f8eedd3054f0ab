// A text with everything on which the bits of the weights depend besides seed and data. Checkpoints
// carry it, and a run refuses to go on from one that has another text, unless it is forced to.
#include "trainer/core/checkpoint/numeric_identity.h"

#include <fmt/format.h>

#include <cstdlib>

namespace forebay::train {
namespace {

// Libraries choose their kernels by this when they are loaded, and different kernels round
// differently.
std::string_view WidestOfMachine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return "avx512";
  if (__builtin_cpu_supports("avx2") != 0) return "avx2";
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "other";
#endif
}

}  // namespace

std::string VectorInstructions() {
  std::string text(WidestOfMachine());
  // These override the choice of LibTorch and of OpenBLAS.
  for (const char* const name : {"ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE"}) {
    if (const char* const value = std::getenv(name)) text += fmt::format(",{}", value);
  }
  return text;
}

std::string ToText(const NumericIdentity& identity) {
  // What has its usual value is left out, so that checkpoints from before there was a choice stay
  // equal.
  std::string text =
      fmt::format("threads={} micro_batch={} library={} isa={}", identity.threads,
                  identity.micro_batch, identity.library, VectorInstructions());
  if (identity.precision != Precision::kFp32) {
    text += fmt::format(" precision={}", PrecisionName(identity.precision));
  }
  if (!identity.exact) text += " sums=fast";
  if (!identity.layouts.empty()) text += fmt::format(" layouts=[{}]", identity.layouts);
  return text;
}

}  // namespace forebay::train
