// Fuzz target: a chunk of a shape that the input's first byte names, its codec the next one's,
// the payload what is left. Whatever it says: the whole chunk decodes or does not, a part of it,
// and samples each to a place of its own, decode to the same bytes, nothing is written beside the
// output, and what decodes can be described.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/decode/chunk/chunk_description.h"
#include "compress/format/chunk/chunk_header.h"

namespace forebay::compress {
namespace {

// One shape for each way in which a chunk is laid out: frames, stacked frames, channels behind and
// before the pixels, each width of element, and byte strings.
constexpr std::array<ChunkShape, 8> kShapes = {{
    {.dtype = Dtype::kU8, .samples = 2, .rank = 2, .extent = {64, 64, 1, 1}},
    {.dtype = Dtype::kU8, .samples = 3, .rank = 3, .extent = {8, 24, 3, 1}, .channel_axis = 2},
    {.dtype = Dtype::kU16, .samples = 1, .rank = 3, .extent = {4, 8, 24, 1}, .channel_axis = 0},
    {.dtype = Dtype::kF32, .samples = 2, .rank = 2, .extent = {8, 24, 1, 1}},
    {.dtype = Dtype::kF16, .samples = 5, .rank = 1, .extent = {40, 1, 1, 1}},
    {.dtype = Dtype::kF64, .samples = 2, .rank = 1, .extent = {30, 1, 1, 1}},
    {.dtype = Dtype::kI32, .samples = 2, .rank = 2, .extent = {9, 25, 1, 1}},
    {.dtype = Dtype::kBytes, .samples = 1, .rank = 1, .extent = {16, 1, 1, 1}},
}};

constexpr std::size_t kGuard = 64;
constexpr std::byte kCanary{0xC7};

// Whether `range` decodes; its bytes, between canaries, into `memory`.
bool Decode(const ChunkShape& shape, ChunkCodec codec, std::span<const std::byte> payload,
            const ChunkRange& range, std::vector<std::byte>& memory) {
  const std::size_t bytes = range.sample_count * shape.sample_bytes();
  memory.assign(bytes + 2 * kGuard, kCanary);
  // Exactly the size that is asked for: an address sanitiser finds a decoder that needs more.
  std::vector<std::byte> scratch(ChunkScratchBytes(shape));
  const std::span out = std::span(memory).subspan(kGuard, bytes);
  const bool decodes = DecodeChunk(shape, codec, payload, range,
                                   StridedOutput::Dense(shape, range, out), scratch)
                           .has_value();
  const auto intact = [](std::byte byte) { return byte == kCanary; };
  if (!std::all_of(memory.begin(), memory.begin() + kGuard, intact) ||
      !std::all_of(memory.end() - kGuard, memory.end(), intact)) {
    __builtin_trap();
  }
  memory.erase(memory.end() - kGuard, memory.end());
  memory.erase(memory.begin(), memory.begin() + kGuard);
  return decodes;
}

// Every other sample, from the chunk's last one on, canaries between them: whether they decode.
// Traps where they are not those of `whole`.
bool DecodeEveryOther(const ChunkShape& shape, ChunkCodec codec,
                      std::span<const std::byte> payload, std::span<const std::byte> whole) {
  const std::size_t bytes = shape.sample_bytes();
  std::vector<std::byte> memory(shape.samples * (bytes + kGuard) + kGuard, kCanary);
  std::vector<std::byte> scratch(ChunkScratchBytes(shape));
  std::vector<std::span<std::byte>> places(shape.samples);
  for (std::uint32_t i = 0; i < shape.samples; ++i) {
    // The places are in reverse order, so that no two samples can be decoded as one run.
    const std::size_t at = kGuard + (shape.samples - 1 - i) * (bytes + kGuard);
    if ((shape.samples - i) % 2 == 1) places[i] = std::span(memory).subspan(at, bytes);
  }
  const bool decodes = DecodeChunkSamples(shape, codec, payload, places, scratch).has_value();
  for (std::uint32_t i = 0; i < shape.samples; ++i) {
    if (decodes && !whole.empty() && !places[i].empty() &&
        !std::ranges::equal(places[i], whole.subspan(i * bytes, bytes))) {
      __builtin_trap();
    }
    std::ranges::fill(places[i], kCanary);
  }
  const auto intact = [](std::byte byte) { return byte == kCanary; };
  if (!std::ranges::all_of(memory, intact)) __builtin_trap();
  return decodes;
}

void Check(std::span<const std::byte> input) {
  const ChunkShape& shape = kShapes[std::to_integer<std::size_t>(input[0]) % kShapes.size()];
  const auto codec = static_cast<ChunkCodec>(input[1]);
  const std::span<const std::byte> payload = input.subspan(2);
  const bool described = DescribeChunk(shape, codec, payload).has_value();
  std::vector<std::byte> whole, part;
  const bool decodes = Decode(shape, codec, payload, ChunkRange::Whole(shape), whole);
  if (!decodes) whole.clear();
  // What is wrong with a sample that is not wanted may go unseen.
  if (!DecodeEveryOther(shape, codec, payload, whole) && decodes) __builtin_trap();
  if (!decodes) return;
  if (!described) __builtin_trap();
  for (std::uint32_t first = 0; first < shape.samples; ++first) {
    const ChunkRange range = ChunkRange::Samples(shape, first, 1);
    if (!Decode(shape, codec, payload, range, part)) __builtin_trap();
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first * shape.sample_bytes());
    if (!std::equal(part.begin(), part.end(), begin)) __builtin_trap();
  }
}

}  // namespace
}  // namespace forebay::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 2) forebay::compress::Check(std::as_bytes(std::span(data, size)));
  return 0;
}
