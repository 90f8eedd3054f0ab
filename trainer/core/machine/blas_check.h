// Refuses to train on reference BLAS, on which Debian's LibTorch is 16 times slower than on
// OpenBLAS (1024^3 GEMM: 6 against 100 GFLOP/s per thread) without saying so.
#pragma once

#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

inline constexpr double kBlasGflopsMin = 12.0;  // per process; twice what reference BLAS does

// What a probe found. `library` is the resolved path of the file that provides sgemm_; empty
// where the symbol is not exported.
struct BlasFacts {
  std::string library;
  double gemm_gflops = 0;     // measured, single precision
  std::string built_in = {};  // "mkl" where LibTorch says that it holds one, as wheels' does
};

class BlasProbe {
 public:
  virtual ~BlasProbe() = default;
  virtual Result<BlasFacts> Measure() = 0;
};

struct BlasVerdict {
  std::string name;  // "openblas", "mkl", "blis", "reference", "unknown"
  bool fast = false;
  BlasFacts facts;
};

// Fast by name or by measurement: a busy machine must not condemn OpenBLAS, nor an unknown
// name a BLAS that is quick.
BlasVerdict JudgeBlas(const BlasFacts& facts);

// kFailedPrecondition with the remedy where BLAS is slow and `force` is not set.
Result<BlasVerdict> CheckBlas(BlasProbe& probe, bool force);

// The path of the shared object that provides sgemm_ in this process, symbolic links resolved;
// empty where nobody exports it.
std::string BlasLibraryOfProcess();

}  // namespace forebay::train
