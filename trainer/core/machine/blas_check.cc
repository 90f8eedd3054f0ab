// Two pieces of evidence: the resolved file name of the library that provides sgemm_, and a
// measured product of matrices. A known fast name or a fast measurement is enough. So a busy
// machine does not condemn OpenBLAS, and an unknown name does not condemn a fast library.
#include "trainer/core/machine/blas_check.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace forebay::train {
namespace {

// Distributions put the name of the implementation into the path or into the file's name.
std::string NameIn(std::string path) {
  std::ranges::transform(path, path.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const std::string_view name : {"openblas", "mkl", "blis", "armpl", "nvpl"}) {
    if (path.find(name) != std::string::npos) return std::string(name);
  }
  // Debian keeps netlib's BLAS as .../blas/libblas.so.3; the quick ones have their own folder.
  const std::size_t slash = path.rfind('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  if (file.starts_with("libblas.so") || file.starts_with("libcblas.so")) return "reference";
  return "unknown";
}

}  // namespace

// A LibTorch with BLAS linked into it has no library to name, but knows what it was built with.
BlasVerdict JudgeBlas(const BlasFacts& facts) {
  BlasVerdict verdict{.name = facts.built_in.empty() ? NameIn(facts.library) : facts.built_in,
                      .fast = false,
                      .facts = facts};
  const bool known_fast = verdict.name != "reference" && verdict.name != "unknown";
  verdict.fast = known_fast || facts.gemm_gflops >= kBlasGflopsMin;
  return verdict;
}

// The message has the remedy for Debian, because its LibTorch depends on reference BLAS.
Result<BlasVerdict> CheckBlas(BlasProbe& probe, bool force) {
  FOREBAY_ASSIGN(const BlasFacts facts, probe.Measure());
  BlasVerdict verdict = JudgeBlas(facts);
  if (verdict.fast || force) return verdict;
  return Error(
      ErrorCode::kFailedPrecondition,
      fmt::format("LibTorch runs on slow BLAS ({}: {}, {:.1f} GFLOP/s, at least {:.0f} wanted). "
                  "Remedy: apt-get install libopenblas0-openmp; where it is installed, "
                  "update-alternatives --config libblas.so.3-$(uname -m)-linux-gnu. "
                  "--force-slow-blas trains all the same",
                  verdict.name, facts.library.empty() ? "no library found" : facts.library,
                  facts.gemm_gflops, kBlasGflopsMin));
}

std::string BlasLibraryOfProcess() {
  // The symbol that LibTorch's calls resolve to, which links such as libblas.so.3 hide.
  void* const symbol = ::dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info = {};
  if (symbol == nullptr || ::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(info.dli_fname, nullptr),
                                                             &std::free);
  return resolved != nullptr ? resolved.get() : info.dli_fname;
}

}  // namespace forebay::train
