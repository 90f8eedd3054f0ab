// CheckBlas: refuses to train on reference BLAS. Debian's LibTorch runs on it without a warning,
// and is then 16 times slower than on OpenBLAS (product of two 1024 x 1024 matrices: 6 instead of
// 100 GFLOP/s per thread).
#pragma once

#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

inline constexpr double kBlasGflopsMin = 12.0;  // per process; twice what reference BLAS does

// What a probe found. `library` is the resolved path of the file that provides sgemm_; empty if no
// library exports the symbol.
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

// BLAS counts as fast by its name or by the measurement: a busy machine must not condemn OpenBLAS,
// nor an unknown name a BLAS that is fast.
BlasVerdict JudgeBlas(const BlasFacts& facts);

// kFailedPrecondition, with the remedy, if BLAS is slow and `force` is not set.
Result<BlasVerdict> CheckBlas(BlasProbe& probe, bool force);

// The path of the shared object that provides sgemm_ in this process, with symbolic links resolved;
// empty if there is none.
std::string BlasLibraryOfProcess();

}  // namespace forebay::train
