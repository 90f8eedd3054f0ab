// Times a product of two matrices. The best of some repetitions counts, because the first ones also
// start threads and raise the clock of the processor, and a busy machine only makes them slower.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>

#include "trainer/exec/torch_engine.h"

namespace forebay::train {
namespace {

constexpr std::int64_t kSide = 512;  // 0.27 GFLOP: 50 ms on reference BLAS, 3 ms on OpenBLAS
// With three repetitions (10 ms on OpenBLAS), models were seen to run at 150 % of this "peak".
constexpr int kRepeatsMin = 3;
constexpr double kMeasuringS = 0.1;

// The product is a new tensor each time, as the result of an operator of a model is.
double SecondsOfGemm(const at::Tensor& a, const at::Tensor& b) {
  const auto start = std::chrono::steady_clock::now();
  const at::Tensor product = at::mm(a, b);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

class TorchBlasProbe final : public BlasProbe {
 public:
  Result<BlasFacts> Measure() override {
    FOREBAY_ASSIGN(const double gflops, MeasureProduct(Precision::kFp32));
    return BlasFacts{.library = BlasLibraryOfProcess(),
                     .gemm_gflops = gflops,
                     .built_in = at::hasMKL() ? "mkl" : ""};
  }
};

}  // namespace

std::unique_ptr<BlasProbe> MakeTorchBlasProbe() { return std::make_unique<TorchBlasProbe>(); }

Result<double> MeasureProduct(Precision precision) {
  try {
    // Constant values take as long as any others, and are never denormal.
    const at::ScalarType type = precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
    const at::Tensor a = at::full({kSide, kSide}, 0.5, type);
    const at::Tensor b = at::full({kSide, kSide}, 0.25, type);
    double best_s = std::numeric_limits<double>::infinity();
    double total_s = 0;
    for (int i = 0; i < kRepeatsMin || total_s < kMeasuringS; ++i) {
      const double product_s = SecondsOfGemm(a, b);
      best_s = std::min(best_s, product_s);
      total_s += product_s;
    }
    // A multiplication and an addition for each of the side^3 pairs.
    return 2e-9 * kSide * kSide * kSide / best_s;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what()).WithContext("LibTorch GEMM");
  }
}

Status SetTorchThreads(std::uint32_t threads) {
  try {
    at::set_num_threads(static_cast<int>(threads));
    // The trainer runs one operator at a time, so a second pool of threads would only cost memory.
    if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);  // allowed once
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what()).WithContext("LibTorch threads");
  }
  return {};
}

}  // namespace forebay::train
