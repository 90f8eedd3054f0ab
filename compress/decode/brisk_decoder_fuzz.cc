// Fuzz target: a brisk body. The first four bytes give the shape (frames, rows, columns, bits), the
// rest is the body behind its kind byte. The scalar kernel and all others of this processor
// agree on whether it decodes and on every sample, which is below 2^bits; nothing is written
// beside the output.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "compress/decode/brisk_decoder.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kCanary{0xC7};

bool Decode(const PlaneShape& shape, std::span<const std::byte> body, std::uint32_t frames,
            WaveKernel kernel, std::vector<std::byte>& samples) {
  PlaneShape wanted = shape;
  wanted.frames = frames;
  samples.assign(wanted.bytes() + 2 * kGuard, kCanary);
  std::vector<std::byte> scratch(BriskScratchBytes(shape), kCanary);
  const bool decodes =
      DecodeBrisk(shape, body, frames, kernel,
                 std::span(samples).subspan(kGuard, wanted.bytes()), scratch)
          .has_value();
  const auto intact = [](std::byte byte) { return byte == kCanary; };
  if (!std::all_of(samples.begin(), samples.begin() + kGuard, intact) ||
      !std::all_of(samples.end() - kGuard, samples.end(), intact)) {
    __builtin_trap();
  }
  samples.erase(samples.end() - kGuard, samples.end());
  samples.erase(samples.begin(), samples.begin() + kGuard);
  return decodes;
}

void CheckRange(const PlaneShape& shape, std::span<const std::byte> samples) {
  const unsigned limit = 1U << shape.bits;
  for (std::size_t i = 0; i < samples.size(); i += shape.sample_bytes()) {
    unsigned value = std::to_integer<unsigned>(samples[i]);
    if (shape.sample_bytes() == 2) value |= std::to_integer<unsigned>(samples[i + 1]) << 8;
    if (value >= limit) __builtin_trap();
  }
}

void Check(const PlaneShape& shape, std::span<const std::byte> body) {
  std::vector<std::byte> scalar, other;
  for (std::uint32_t frames = shape.frames; frames > 0; --frames) {
    const bool decodes = Decode(shape, body, frames, WaveKernel::kScalar, scalar);
    for (const WaveKernel kernel : WaveKernels().subspan(1)) {
      if (Decode(shape, body, frames, kernel, other) != decodes) __builtin_trap();
      if (scalar != other) __builtin_trap();
    }
    if (decodes) CheckRange(shape, scalar);
  }
}

}  // namespace
}  // namespace forebay::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const forebay::compress::PlaneShape shape{
      .frames = 1U + data[0] % 3, .rows = 1U + data[1] % 24, .columns = 1U + data[2] % 80,
      .bits = static_cast<std::uint8_t>(1 + data[3] % 16)};
  forebay::compress::Check(shape, std::as_bytes(std::span(data + 4, size - 4)));
  return 0;
}
