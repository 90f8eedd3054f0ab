// Values of quantised f32 from one plane: sample, mask, shift, base, step, and the patterns of
// masks, in one pass over memory. Kernels do whole registers; the rest, and processors without
// them, are done here one value at a time. Called by element_assembler.cc.
#include "compress/decode/chunk/linear_values.h"

#include <bit>
#include <cstring>

namespace forebay::compress {
namespace {

template <typename Sample>
void EmitRest(const LinearRun& run, std::size_t begin, std::size_t end, std::byte* to) {
  for (std::size_t i = begin; i < end; ++i) {
    Sample sample = 0;
    std::memcpy(&sample, run.samples + i * sizeof(Sample), sizeof(Sample));
    // Modulo 2^32, as the format says for elements of 4 bytes.
    const std::uint32_t number = run.base + ((sample & run.sample_mask) << run.shift);
    // One rounding to f64 and one to f32, which encoders have checked their bound with.
    const double value = static_cast<double>(static_cast<std::int32_t>(number)) * run.step;
    auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    for (std::uint32_t m = 0; m < run.mask_count; ++m) {
      if (run.masks[m][i] != 0) bits = run.patterns[m];
    }
    std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
  }
}

// Returns how many values were done: whole registers, and none where there is no kernel.
std::size_t EmitWide(const LinearRun& run, std::size_t count, std::byte* to, Isa isa) {
#ifdef FOREBAY_X86_KERNELS
  if (isa == Isa::kAvx512) return EmitLinearValuesAvx512(run, count, to);
  if (isa == Isa::kAvx2) return EmitLinearValuesAvx2(run, count, to);
#endif
  static_cast<void>(run);
  static_cast<void>(count);
  static_cast<void>(to);
  static_cast<void>(isa);
  return 0;
}

}  // namespace

void EmitLinearValues(const LinearRun& run, std::size_t count, std::byte* to, Isa isa) {
  const std::size_t done = EmitWide(run, count, to, isa);
  if (run.sample_bytes == 1) {
    EmitRest<std::uint8_t>(run, done, count, to);
  } else {
    EmitRest<std::uint16_t>(run, done, count, to);
  }
}

}  // namespace forebay::compress
