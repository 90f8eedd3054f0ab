// EncodePlanes and DecodePlanes: what goes in comes out, damaged bodies are refused.
#include <random>

#include <gtest/gtest.h>

#include "compress/decode/plane_decoder.h"
#include "compress/encode/plane_encoder.h"

namespace forebay::compress::plane_codec_test {

constexpr std::uint32_t kSeed = 20261121;

std::vector<std::byte> MakeSamples(const PlaneShape& shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> samples(shape.bytes());
  const std::uint32_t mask = (1U << shape.bits) - 1;
  const std::size_t width = shape.sample_bytes();
  for (std::size_t i = 0; i < samples.size(); i += width) {
    const auto value = static_cast<std::uint32_t>(random() % 7 + i / 5) & mask;
    for (std::size_t k = 0; k < width; ++k) {
      samples[i + k] = static_cast<std::byte>(value >> (8 * k));
    }
  }
  return samples;
}

TEST(PlaneCodec, EveryWidthComesBackWholeAndInPart) {
  for (std::uint8_t bits = 1; bits <= 16; ++bits) {
    const PlaneShape shape = {.frames = 3, .rows = 9, .columns = 17, .bits = bits};
    const auto samples = MakeSamples(shape, kSeed + bits);
    for (const Profile profile : {Profile::kFast, Profile::kDense}) {
      const auto body = EncodePlanes(shape, samples, profile);
      ASSERT_TRUE(body.has_value());
      std::vector<std::byte> scratch(PlaneScratchBytes(shape));
      for (std::uint32_t frames = 0; frames <= shape.frames; ++frames) {
        const std::size_t wanted = samples.size() / shape.frames * frames;
        std::vector<std::byte> decoded(wanted);
        ASSERT_TRUE(DecodePlanes(shape, *body, frames, decoded, scratch).has_value());
        EXPECT_TRUE(std::equal(decoded.begin(), decoded.end(), samples.begin()))
            << int{bits} << " bits, " << frames << " frames, seed " << kSeed;
      }
    }
  }
}

TEST(PlaneCodec, RefusesSamplesBeyondTheirBits) {
  const PlaneShape shape = {.frames = 1, .rows = 1, .columns = 2, .bits = 3};
  const std::vector<std::byte> samples = {std::byte{7}, std::byte{8}};
  const auto body = EncodePlanes(shape, samples, Profile::kDense);
  ASSERT_FALSE(body.has_value());
  EXPECT_EQ(body.error().code(), ErrorCode::kInvalidArgument);
}

TEST(PlaneCodec, RefusesEveryTruncation) {
  const PlaneShape shape = {.frames = 2, .rows = 16, .columns = 16, .bits = 8};
  const auto samples = MakeSamples(shape, kSeed);
  const auto body = EncodePlanes(shape, samples, Profile::kDense);
  ASSERT_TRUE(body.has_value());
  std::vector<std::byte> scratch(PlaneScratchBytes(shape)), decoded(samples.size());
  for (std::size_t bytes = 0; bytes < body->size(); ++bytes) {
    const auto status =
        DecodePlanes(shape, std::span(*body).first(bytes), shape.frames, decoded, scratch);
    ASSERT_FALSE(status.has_value()) << bytes << " of " << body->size();
    EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss);
  }
}

}  // namespace forebay::compress::plane_codec_test
