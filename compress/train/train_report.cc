// Measures what a predictor gains on planes that were held out: encodes them without and with it,
// decodes them with every kernel and compares. Called by compress_train_main.cc.
#include "compress/train/train_report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "compress/decode/isa.h"
#include "compress/decode/plane_decoder.h"
#include "compress/encode/plane_encoder.h"

namespace forebay::compress {
namespace {

double GainOf(std::uint64_t before, std::uint64_t after) {
  // Avoids a division by 0 where nothing was held out.
  return after == 0 ? 0 : static_cast<double>(before) / static_cast<double>(after) - 1;
}

}  // namespace

// The predictor's own bytes count once for a whole data set, so both figures are of interest.
double HeldOutGain::without_model() const { return GainOf(dense_bytes, learned_bytes); }
double HeldOutGain::with_model() const {
  return GainOf(dense_bytes, learned_bytes + model_bytes);
}

Result<HeldOutGain> MeasureGain(std::span<const PlaneStack> stacks,
                                const std::shared_ptr<const Predictor>& predictor,
                                bool all_kernels) {
  HeldOutGain gain;
  gain.model_bytes = predictor->bytes().size();
  const std::array list = {predictor};
  for (const PlaneStack& stack : stacks) {
    FOREBAY_ASSIGN(const std::vector<std::byte> dense,
                   EncodePlanes(stack.shape, stack.samples, Profile::kDense));
    FOREBAY_ASSIGN(const std::vector<std::byte> learned,
                   EncodePlanes(stack.shape, stack.samples, Profile::kLearned, predictor.get()));
    std::vector<std::byte> decoded(stack.samples.size());
    // Memory is taken before the clock starts.
    std::vector<std::byte> scratch(PlaneScratchBytes(stack.shape));
    for (const Isa isa : AvailableIsas()) {
      if (!all_kernels && isa != BestIsa()) continue;
      // Otherwise a kernel that writes nothing would pass on what the one before it left.
      std::ranges::fill(decoded, std::byte{0});
      const auto began = std::chrono::steady_clock::now();
      FOREBAY_TRY(DecodePlanes(stack.shape, learned, stack.shape.frames, decoded, scratch, isa,
                               list));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      // The time is that of the kernel that readers will use on this processor.
      if (isa == BestIsa()) gain.decode_s += took.count();
      if (decoded != stack.samples) {
        return Error(ErrorCode::kInternal, "a plane did not come back under the new predictor");
      }
    }
    ++gain.planes;
    // Only stacks that came back bit for bit are counted.
    gain.raw_bytes += stack.samples.size();
    gain.dense_bytes += dense.size();
    gain.learned_bytes += learned.size();
  }
  return gain;
}

}  // namespace forebay::compress
