// The wavefront codec: every shape comes back, kernels agree bit for bit, damage is refused.
#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/isa.h"
#include "compress/decode/wavefront/wavefront_decoder.h"
#include "compress/encode/wavefront/wavefront_encoder.h"
#include "proto/contract/checksum.h"

namespace forebay::compress::wavefront_codec_test {

constexpr std::uint32_t kSeed = 20261121;
constexpr std::size_t kGoldenBytes = 19514;
constexpr std::uint64_t kGoldenHash = 16770804375244296709ULL;

enum class Scene { kNoise, kMoving, kStill, kFlat };

// A textured picture that moves by (1, -2) a frame, with a little noise; noise alone; a picture
// that stands still; one value.
std::vector<std::byte> MakeSamples(const PlaneShape& shape, Scene scene, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> samples;
  samples.reserve(shape.bytes());
  const std::uint32_t mask = (1U << shape.bits) - 1;
  const std::uint32_t scale = shape.bits > 4 ? 1U << (shape.bits - 5) : 1;
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    for (std::uint32_t y = 0; y < shape.rows; ++y) {
      for (std::uint32_t x = 0; x < shape.columns; ++x) {
        const std::uint32_t shift = scene == Scene::kMoving ? t : 0;
        const std::uint32_t v = y + 40 - shift;
        const std::uint32_t u = x + 2 * shift;
        std::uint32_t value = ((u / 5 + v / 7) % 9 + (u * v / 64) % 5) * scale;
        if (scene == Scene::kMoving) value += static_cast<std::uint32_t>(random() % 3);
        if (scene == Scene::kNoise) value = static_cast<std::uint32_t>(random());
        if (scene == Scene::kFlat) value = 5;
        value &= mask;
        samples.push_back(static_cast<std::byte>(value & 0xFF));
        if (shape.sample_bytes() == 2) samples.push_back(static_cast<std::byte>(value >> 8));
      }
    }
  }
  return samples;
}

struct Decoded {
  bool ok = false;
  std::vector<std::byte> samples;
};

Decoded Decode(const PlaneShape& shape, std::span<const std::byte> body, std::uint32_t frames,
               Isa isa) {
  Decoded result;
  result.samples.assign(frames * shape.frame_samples() * shape.sample_bytes(), std::byte{0xEE});
  std::vector<std::byte> scratch(WavefrontScratchBytes(shape), std::byte{0xA5});
  const Status status =
      DecodeWavefront(shape, body, frames, isa, std::span(result.samples), scratch);
  if (!status.has_value()) {
    EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss) << status.error().message();
  }
  result.ok = status.has_value();
  return result;
}

void ExpectRoundTrip(const PlaneShape& shape, Scene scene, const WavefrontEffort& effort) {
  const auto samples = MakeSamples(shape, scene, kSeed);
  const auto body = EncodeWavefront(shape, samples, effort);
  for (Isa isa : AvailableIsas()) {
    const Decoded decoded = Decode(shape, body, shape.frames, isa);
    ASSERT_TRUE(decoded.ok && decoded.samples == samples)
        << shape.frames << " x " << shape.rows << " x " << shape.columns << ", "
        << int{shape.bits} << " bits, scene " << static_cast<int>(scene) << ", isa "
        << static_cast<int>(isa) << ", seed " << kSeed;
  }
}

TEST(WavefrontCodec, MovingPicturesTakeAFractionOfTheirSize) {
  const PlaneShape shape{.frames = 8, .rows = 144, .columns = 176, .bits = 8};
  const auto samples = MakeSamples(shape, Scene::kMoving, kSeed);
  const auto with_motion = EncodeWavefront(shape, samples, {});
  const auto without = EncodeWavefront(shape, samples, {.fit_rounds = 0, .motion_reach = 0});
  EXPECT_LT(with_motion.size(), samples.size() * 2 / 5);
  EXPECT_LT(with_motion.size(), without.size());
  ExpectRoundTrip(shape, Scene::kMoving, {});
}

TEST(WavefrontCodec, StillAndFlatPicturesAreSkipped) {
  const PlaneShape shape{.frames = 8, .rows = 128, .columns = 160, .bits = 8};
  const auto still = EncodeWavefront(shape, MakeSamples(shape, Scene::kStill, kSeed), {});
  const auto one = EncodeWavefront(
      {.frames = 1, .rows = 128, .columns = 160, .bits = 8},
      MakeSamples({.frames = 1, .rows = 128, .columns = 160, .bits = 8}, Scene::kStill, kSeed), {});
  EXPECT_LT(still.size(), one.size() + 200);  // seven frames of nothing but skipped blocks
  EXPECT_LT(EncodeWavefront(shape, MakeSamples(shape, Scene::kFlat, kSeed), {}).size(), 600U);
  ExpectRoundTrip(shape, Scene::kStill, {});
  ExpectRoundTrip(shape, Scene::kFlat, {});
}

TEST(WavefrontCodec, EveryShapeComesBack) {
  for (const std::uint32_t rows : {1U, 2U, 15U, 63U, 64U, 65U, 129U}) {
    for (const std::uint32_t columns : {1U, 2U, 3U, 16U, 33U, 129U, 131U, 150U}) {
      const PlaneShape shape{.frames = 3, .rows = rows, .columns = columns, .bits = 8};
      ExpectRoundTrip(shape, Scene::kMoving, {.fit_rounds = 1});
      ExpectRoundTrip(shape, Scene::kNoise, {.fit_rounds = 0, .motion_reach = 0});
    }
  }
}

TEST(WavefrontCodec, EveryWidthComesBack) {
  for (std::uint8_t bits = 1; bits <= 16; ++bits) {
    for (const Scene scene : {Scene::kNoise, Scene::kMoving, Scene::kStill, Scene::kFlat}) {
      ExpectRoundTrip({.frames = 3, .rows = 70, .columns = 140, .bits = bits}, scene, {});
    }
  }
}

TEST(WavefrontCodec, EveryEffortComesBack) {
  const PlaneShape shape{.frames = 4, .rows = 80, .columns = 150, .bits = 8};
  for (const std::uint32_t filters : {1U, 2U, 8U, 16U}) {
    for (const std::int32_t reach : {0, 16}) {
      ExpectRoundTrip(shape, Scene::kMoving,
                      {.fit_rounds = filters == 16 ? 3U : 0U,
                       .motion_reach = reach,
                       .intra_filters = filters,
                       .inter_filters = filters});
    }
  }
}

TEST(WavefrontCodec, FirstFramesAreAPrefixOfAll) {
  const PlaneShape shape{.frames = 6, .rows = 66, .columns = 140, .bits = 8};
  const auto samples = MakeSamples(shape, Scene::kMoving, kSeed);
  const auto body = EncodeWavefront(shape, samples, {});
  for (Isa isa : AvailableIsas()) {
    for (std::uint32_t frames = 0; frames <= shape.frames; ++frames) {
      const Decoded decoded = Decode(shape, body, frames, isa);
      ASSERT_TRUE(decoded.ok);
      EXPECT_TRUE(std::equal(decoded.samples.begin(), decoded.samples.end(), samples.begin()));
    }
  }
}

// The format is what this encoder writes: a change of any byte is a change of the format or of
// the search, and shows here. The input is arithmetic, without a library's random numbers.
TEST(WavefrontCodec, EncodesTheSameBytesEverywhere) {
  const PlaneShape shape{.frames = 4, .rows = 96, .columns = 160, .bits = 8};
  std::vector<std::byte> samples(shape.bytes());
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    state = state * 1664525 + 1013904223;
    samples[i] = static_cast<std::byte>((i % 160 / 3 + i / 480 + (state >> 30)) & 0xFF);
  }
  const auto body = EncodeWavefront(shape, samples, {});
  EXPECT_EQ(body.size(), kGoldenBytes);
  EXPECT_EQ(Checksum(body), kGoldenHash);
}

TEST(WavefrontCodec, RefusesEveryTruncation) {
  const PlaneShape shape{.frames = 2, .rows = 20, .columns = 24, .bits = 8};
  const auto body = EncodeWavefront(shape, MakeSamples(shape, Scene::kMoving, kSeed), {});
  for (Isa isa : AvailableIsas()) {
    for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
      EXPECT_FALSE(Decode(shape, std::span(body).first(bytes), shape.frames, isa).ok) << bytes;
    }
  }
}

// A damaged body may decode to other samples, which checksums above find; it must not read or
// write out of bounds, and all kernels must do the same with it.
TEST(WavefrontCodec, KernelsAgreeOnDamagedBodies) {
  std::mt19937 random(kSeed);
  std::size_t refused = 0;
  for (const std::uint8_t bits : std::vector<std::uint8_t>{8, 5, 9, 12, 16}) {
    const PlaneShape shape{.frames = 3, .rows = 70, .columns = 140, .bits = bits};
    const auto body = EncodeWavefront(shape, MakeSamples(shape, Scene::kMoving, kSeed), {});
    for (int round = 0; round < 180; ++round) {
      auto damaged = body;
      // Half of the time in what steers the decoder, half anywhere.
      const std::size_t range = round % 2 == 0 ? std::min<std::size_t>(400, body.size())
                                               : body.size();
      damaged[random() % range] ^= static_cast<std::byte>(1U << (random() % 8));
      const Decoded scalar = Decode(shape, damaged, shape.frames, Isa::kScalar);
      refused += scalar.ok ? 0 : 1;
      for (Isa isa : AvailableIsas().subspan(1)) {
        const Decoded other = Decode(shape, damaged, shape.frames, isa);
        // What is refused at its end was decoded before: it is the same, too.
        ASSERT_TRUE(scalar.ok == other.ok && scalar.samples == other.samples)
            << int{bits} << " bits, round " << round << ", isa " << static_cast<int>(isa)
            << ", seed " << kSeed;
      }
    }
  }
  EXPECT_GT(refused, 600U);  // of 900
}

}  // namespace forebay::compress::wavefront_codec_test
