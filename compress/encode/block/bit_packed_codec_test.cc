// The bit-packed codec: every shape comes back, kernels agree, damage is refused.
#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/block/bit_packed_decoder.h"
#include "compress/decode/isa.h"
#include "compress/encode/block/bit_packed_encoder.h"
#include "compress/format/plane/block_format.h"

namespace forebay::compress::bit_packed_codec_test {

constexpr std::uint32_t kSeed = 20261121;

// `spread` is the range of a sample's change from its neighbours and from frame to frame.
std::vector<std::byte> MakeSamples(const PlaneShape& shape, std::uint32_t spread,
                                   std::mt19937& random) {
  std::vector<std::byte> samples;
  const std::uint32_t mask = (1U << shape.bits) - 1;
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    for (std::uint32_t y = 0; y < shape.rows; ++y) {
      for (std::uint32_t x = 0; x < shape.columns; ++x) {
        const std::uint32_t value =
            (3 * x + 2 * y + t + static_cast<std::uint32_t>(random()) % spread) & mask;
        samples.push_back(static_cast<std::byte>(value & 0xFF));
        if (shape.sample_bytes() == 2) samples.push_back(static_cast<std::byte>(value >> 8));
      }
    }
  }
  return samples;
}

Status Decode(const PlaneShape& shape, std::span<const std::byte> body, std::uint32_t frames,
              Isa isa, std::vector<std::byte>& samples) {
  samples.assign(frames * shape.frame_samples() * shape.sample_bytes(), std::byte{0xEE});
  std::vector<std::byte> scratch(BitPackedScratchBytes(shape), std::byte{0xA5});
  return DecodeBitPacked(shape, body, frames, isa, std::span(samples), scratch);
}

TEST(BitPackedCodec, EveryShapeAndWidthComesBack) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> decoded;
  for (std::uint8_t bits = 1; bits <= 16; ++bits) {
    for (const std::uint32_t rows : {1U, 3U, 4U, 9U}) {
      for (const std::uint32_t columns : {1U, 15U, 16U, 50U}) {
        for (const std::uint32_t spread : {1U, 5U, 100'000U}) {
          const PlaneShape shape{.frames = 3, .rows = rows, .columns = columns, .bits = bits};
          const auto samples = MakeSamples(shape, spread, random);
          const auto body = EncodeBitPacked(shape, samples);
          for (Isa isa : AvailableIsas()) {
            for (std::uint32_t frames : {1U, 3U}) {
              ASSERT_TRUE(Decode(shape, body, frames, isa, decoded).has_value());
              ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), samples.begin()))
                  << int{bits} << " bits, " << rows << " x " << columns << ", spread " << spread
                  << ", seed " << kSeed;
            }
          }
        }
      }
    }
  }
}

TEST(BitPackedCodec, ExpandsNoiseByItsBlockBytesOnly) {
  std::mt19937 random(kSeed);
  const PlaneShape shape{.frames = 2, .rows = 64, .columns = 64, .bits = 8};
  const auto samples = MakeSamples(shape, 100'000, random);
  EXPECT_LE(EncodeBitPacked(shape, samples).size(), samples.size() + samples.size() / 64 + 5);
}

TEST(BitPackedCodec, RefusesEveryTruncationAndAnyAddition) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> decoded;
  for (const std::uint32_t spread : {1U, 5U}) {
    const PlaneShape shape{.frames = 2, .rows = 20, .columns = 40, .bits = 8};
    auto body = EncodeBitPacked(shape, MakeSamples(shape, spread, random));
    for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
      const Status status = Decode(shape, std::span(body).first(bytes), shape.frames,
                                   BestIsa(), decoded);
      ASSERT_FALSE(status.has_value()) << bytes << " of " << body.size();
      EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss);
    }
    body.push_back(std::byte{1});
    EXPECT_FALSE(Decode(shape, body, shape.frames, BestIsa(), decoded).has_value());
  }
}

TEST(BitPackedCodec, RefusesUnknownFlagsAndWidthsBeyondTheSamples) {
  const PlaneShape shape{.frames = 1, .rows = 4, .columns = 16, .bits = 5};
  std::vector<std::byte> decoded;
  std::vector<std::byte> body(6 + 5 * sizeof(std::uint64_t));
  body[1] = std::byte{1};       // one block byte
  body[5] = std::byte{5 << 3};  // five planes, no predictor
  EXPECT_TRUE(Decode(shape, body, 1, Isa::kScalar, decoded).has_value());
  body[0] = std::byte{kBitPackedCompressedPlanes << 1};
  EXPECT_FALSE(Decode(shape, body, 1, Isa::kScalar, decoded).has_value());
  body[0] = std::byte{0};
  body[5] = std::byte{6 << 3};
  body.resize(6 + 6 * sizeof(std::uint64_t));
  EXPECT_FALSE(Decode(shape, body, 1, Isa::kScalar, decoded).has_value());
}

// Flips may give other samples, which checksums above find; all kernels must give the same.
TEST(BitPackedCodec, KernelsAgreeOnDamagedBodies) {
  std::mt19937 random(kSeed);
  const PlaneShape shape{.frames = 3, .rows = 30, .columns = 70, .bits = 7};
  const auto body = EncodeBitPacked(shape, MakeSamples(shape, 9, random));
  std::vector<std::byte> scalar, other;
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < body.size() * 8; bit += 1 + random() % 5) {
    auto damaged = body;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const bool scalar_ok =
        Decode(shape, damaged, 3, Isa::kScalar, scalar).has_value();
    for (Isa isa : AvailableIsas()) {
      const bool other_ok = Decode(shape, damaged, 3, isa, other).has_value();
      ASSERT_EQ(scalar_ok, other_ok) << "bit " << bit;
      ASSERT_TRUE(!scalar_ok || scalar == other) << "bit " << bit;
    }
    refused += scalar_ok ? 0 : 1;
  }
  EXPECT_GT(refused, 10U);
}

}  // namespace forebay::compress::bit_packed_codec_test
