// Makes the models of golden packs whose fields become wavefront or learned planes, from arithmetic
// alone.
#include "compress/golden/golden_planes.h"

#include <algorithm>
#include <cstdint>

#include "compress/encode/testing/learned_samples.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

// More rows than lanes; enough pixels that frames are not put together (kFramePixelsMin).
constexpr std::uint32_t kRows = 66, kColumns = 64;
constexpr std::uint32_t kTallRows = 128, kTallColumns = 32;  // two: 8 KiB, too few for block-rANS

PackField Frames(const char* name, Dtype dtype, std::uint32_t rows, std::uint32_t columns) {
  return {.name = name, .kind = FieldKind::kImage, .dtype = dtype, .rank = 2,
          .extent = {rows, columns, 1, 1}, .fill_bits = {}, .bound = {}, .samples_per_chunk = 4,
          .tile = {rows, columns, 1, 1}};
}

// A hash of two numbers: noise that is the same on every machine.
std::uint32_t Mixed(std::uint32_t a, std::uint32_t b) {
  std::uint32_t word = a * 0x9E3779B1U + b * 0x85EBCA77U;
  word = (word ^ word >> 15) * 0xC2B2AE3DU;
  return word ^ word >> 13;
}

// Waves with a grain of `grain` values, which is the scene's own: it stands and moves with it.
std::uint32_t Scene(std::uint32_t y, std::uint32_t x, std::uint32_t grain) {
  const std::uint32_t hill = (x + 2 * y) % 64;
  return 60 + (hill < 32 ? hill : 64 - hill) * 2 + y + Mixed(y, x) % grain;
}

std::uint32_t Pixel(std::uint32_t t, std::uint32_t y, std::uint32_t x) {
  // The upper rows stand still, the middle ones move, and the lower ones brighten: blocks find use
  // for every kind of prediction.
  if (y < 20) return Scene(y, x, 2);
  if (y < 50) return Scene(y + t, x + 2 * t, 3);
  return 60 + 2 * x + y + 5 * t + Mixed(100 * t + y, x) % 2;
}

// A grainy slope that moves as a whole, so that without motion it would cost twice, and before it a
// box that stands still, at whose edges residuals are large.
std::uint32_t Depth(std::uint32_t t, std::uint32_t y, std::uint32_t x) {
  if (x > 40 && x < 50 && y > 45 && y < 55) return 700 + 3 * y;
  const std::uint32_t row = y + t, column = x + 2 * t;
  return 9000 + column * column * 7 + 61 * row + Mixed(row, column) % 4;
}

template <typename T>
PackModel Moving(const char* name, Dtype dtype, std::uint32_t frames,
                 std::uint32_t (*value)(std::uint32_t, std::uint32_t, std::uint32_t)) {
  PackModel model;
  model.schema.fields = {Frames(name, dtype, kRows, kColumns)};
  for (std::uint32_t t = 0; t < frames; ++t) {
    ByteWriter writer;
    for (std::uint32_t y = 0; y < kRows; ++y) {
      for (std::uint32_t x = 0; x < kColumns; ++x) writer.Le(static_cast<T>(value(t, y, x)));
    }
    model.samples.push_back({writer.Release()});
  }
  return model;
}

}  // namespace

PackModel WavefrontPictures() {
  return Moving<std::uint8_t>("picture", Dtype::kU8, 3, Pixel);
}

PackModel WavefrontDepths() {
  return Moving<std::uint16_t>("depth", Dtype::kU16, 2, Depth);
}

PackModel LearnablePictures() {
  PackModel model;
  model.schema.fields = {Frames("picture", Dtype::kU8, kTallRows, kTallColumns)};
  const std::vector<std::byte> first = MakeLargerOfTwo(kTallRows, kTallColumns, 1);
  std::vector<std::byte> second = MakeLargerOfTwo(kTallRows, kTallColumns, 2);
  // The upper half stands still.
  std::copy(first.begin(), first.begin() + kTallRows / 2 * kTallColumns, second.begin());
  model.samples = {{first}, {second}};
  return model;
}

}  // namespace forebay::compress
