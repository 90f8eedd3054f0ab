// EncodeChunk and DecodeChunk: every element type comes back, in whole and in part.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/encode/chunk/coded_chunk_encoder.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/plane/plane_shape.h"

namespace forebay::compress::chunk_codec_test {

constexpr std::uint32_t kSeed = 20261122;

std::vector<std::byte> Decode(const ChunkShape& shape, ChunkCodec codec,
                              std::span<const std::byte> payload, const ChunkRange& range) {
  std::size_t elements = range.sample_count;
  for (const std::uint32_t extent : range.extent) elements *= extent;
  std::vector<std::byte> decoded(elements * shape.element_bytes());
  std::vector<std::byte> scratch(ChunkScratchBytes(shape));
  const Status status = DecodeChunk(shape, codec, payload, range,
                                    StridedOutput::Dense(shape, range, decoded), scratch);
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  return decoded;
}

// The range's elements out of the whole chunk, one by one.
std::vector<std::byte> Cut(const ChunkShape& shape, std::span<const std::byte> raw,
                           const ChunkRange& range) {
  std::vector<std::byte> cut;
  const std::size_t bytes = shape.element_bytes();
  const auto& extent = range.extent;
  const std::size_t count = std::size_t{range.sample_count} * extent[0] * extent[1] * extent[2] *
                            extent[3];
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i, at = 0, scale = 1;
    for (std::size_t axis = kChunkRankMax; axis-- > 0;) {
      at += (range.origin[axis] + rest % extent[axis]) * scale;
      rest /= extent[axis];
      scale *= shape.extent[axis];
    }
    at += (range.first_sample + rest) * scale;
    const auto from = raw.begin() + static_cast<std::ptrdiff_t>(at * bytes);
    cut.insert(cut.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
  }
  return cut;
}

ChunkRange RandomRange(const ChunkShape& shape, SampleMaker& maker) {
  ChunkRange range;
  range.first_sample = static_cast<std::uint32_t>(maker.Below(shape.samples));
  range.sample_count =
      static_cast<std::uint32_t>(1 + maker.Below(shape.samples - range.first_sample));
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    range.origin[axis] = static_cast<std::uint32_t>(maker.Below(shape.extent[axis]));
    range.extent[axis] =
        static_cast<std::uint32_t>(1 + maker.Below(shape.extent[axis] - range.origin[axis]));
  }
  return range;
}

TEST(ChunkCodec, EveryTypeAndKindComesBackBitForBit) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SampleMaker maker(kSeed);
  std::size_t coded_chunks = 0;
  for (int round = 0; round < 12; ++round) {
    for (const Dtype dtype : kAllDtypes) {
      for (std::size_t kind = 0; kind < kSampleKinds; ++kind) {
        ChunkShape shape = maker.Shape(dtype);
        if (maker.Below(2) == 0) shape.fill_bits = maker.Below(200);
        SCOPED_TRACE(Describe(shape) + ", kind " + std::to_string(kind));
        const auto raw = maker.Make(shape, static_cast<SampleKind>(kind));
        const ChunkOptions options = {
            .profile = maker.Below(2) == 0 ? Profile::kBalanced : Profile::kDense, .bound = {}};
        const auto chunk = EncodeChunk(shape, raw, options);
        ASSERT_TRUE(chunk.has_value()) << chunk.error().ToString();
        EXPECT_LE(chunk->payload.size(), raw.size());
        coded_chunks += chunk->codec == ChunkCodec::kCoded ? 1 : 0;
        ASSERT_EQ(Decode(shape, chunk->codec, chunk->payload, ChunkRange::Whole(shape)), raw);
        // The coded form too where EncodeChunk chose another.
        const auto coded = EncodeCodedChunk(shape, raw, options);
        ASSERT_TRUE(coded.has_value());
        ASSERT_EQ(Decode(shape, ChunkCodec::kCoded, *coded, ChunkRange::Whole(shape)), raw);
        const ChunkRange range = RandomRange(shape, maker);
        const auto cut = Cut(shape, raw, range);
        ASSERT_EQ(Decode(shape, ChunkCodec::kCoded, *coded, range), cut);
        ASSERT_EQ(Decode(shape, chunk->codec, chunk->payload, range), cut);
      }
    }
  }
  EXPECT_GT(coded_chunks, 100U);
}

TEST(ChunkCodec, WritesOnlyTheWantedElements) {
  SampleMaker maker(kSeed + 1);
  const ChunkShape shape = {
      .dtype = Dtype::kU16, .samples = 3, .rank = 2, .extent = {40, 60, 1, 1}};
  const auto raw = maker.Make(shape, SampleKind::kSmooth);
  const auto chunk = EncodeChunk(shape, raw, {});
  ASSERT_TRUE(chunk.has_value());
  const ChunkRange range = {
      .first_sample = 1, .sample_count = 2, .origin = {5, 7, 0, 0}, .extent = {11, 13, 1, 1}};
  // Into an image of 100 columns, every second element of a row, samples 5,000 bytes apart.
  StridedOutput out = {.sample_stride = 5000, .axis_stride = {200, 4, 0, 0}};
  std::vector<std::byte> memory(12'000, std::byte{0xA5}), scratch(ChunkScratchBytes(shape));
  out.memory = memory;
  ASSERT_TRUE(DecodeChunk(shape, chunk->codec, chunk->payload, range, out, scratch).has_value());
  auto expected = std::vector<std::byte>(memory.size(), std::byte{0xA5});
  for (std::size_t s = 0; s < 2; ++s) {
    for (std::size_t y = 0; y < 11; ++y) {
      for (std::size_t x = 0; x < 13; ++x) {
        std::memcpy(expected.data() + s * 5000 + y * 200 + x * 4,
                    raw.data() + (((1 + s) * 40 + 5 + y) * 60 + 7 + x) * 2, 2);
      }
    }
  }
  EXPECT_EQ(memory, expected);
}

TEST(ChunkCodec, ConstantChunksTakeAFewBytes) {
  for (const Dtype dtype : kAllDtypes) {
    const ChunkShape shape = {
        .dtype = dtype, .samples = 2, .rank = 3, .extent = {64, 64, 3, 1}, .channel_axis = 2};
    const auto raw = SampleMaker(1).Make(shape, SampleKind::kConstant);
    const auto chunk = EncodeChunk(shape, raw, {});
    ASSERT_TRUE(chunk.has_value());
    EXPECT_LE(chunk->payload.size(), 32U) << DtypeName(dtype);
    EXPECT_EQ(Decode(shape, chunk->codec, chunk->payload, ChunkRange::Whole(shape)), raw);
  }
}

TEST(ChunkCodec, NoiseIsStored) {
  const ChunkShape shape = {
      .dtype = Dtype::kF32, .samples = 2, .rank = 2, .extent = {64, 64, 1, 1}};
  const auto raw = SampleMaker(2).Make(shape, SampleKind::kNoise);
  for (const Profile profile : {Profile::kFast, Profile::kBalanced, Profile::kDense}) {
    const auto chunk = EncodeChunk(shape, raw, {.profile = profile, .bound = {}});
    ASSERT_TRUE(chunk.has_value());
    EXPECT_EQ(chunk->codec, ChunkCodec::kStore);
    EXPECT_EQ(chunk->payload, raw);
  }
}

TEST(ChunkCodec, SameInputSameBytes) {
  SampleMaker maker(kSeed + 2);
  const ChunkShape shape = {
      .dtype = Dtype::kF32, .samples = 2, .rank = 2, .extent = {64, 64, 1, 1}};
  const auto raw = maker.Make(shape, SampleKind::kSmooth);
  const ChunkOptions options = {.profile = Profile::kDense,
                                .bound = {.mode = BoundMode::kAbsolute, .absolute = 0.25}};
  const auto first = EncodeChunk(shape, raw, options), second = EncodeChunk(shape, raw, options);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->codec, ChunkCodec::kCoded);
  EXPECT_EQ(first->payload, second->payload);
}

// So that whoever hashes or measures what a reader gets need not decode again.
TEST(ChunkCodec, SaysWhatReadersGetWhereThatIsNotWhatWasGiven) {
  SampleMaker maker(kSeed + 2);
  const ChunkShape shape = {
      .dtype = Dtype::kF32, .samples = 2, .rank = 2, .extent = {64, 64, 1, 1}};
  const auto raw = maker.Make(shape, SampleKind::kSmooth);
  for (const double absolute : {0.0, 0.25}) {
    const BoundMode mode = absolute > 0 ? BoundMode::kAbsolute : BoundMode::kLossless;
    const auto chunk = EncodeChunk(
        shape, raw, {.profile = Profile::kDense, .bound = {.mode = mode, .absolute = absolute}});
    ASSERT_TRUE(chunk.has_value());
    ASSERT_EQ(chunk->codec, ChunkCodec::kCoded);
    std::vector<std::byte> read(shape.bytes()), scratch(ChunkScratchBytes(shape));
    const ChunkRange whole = ChunkRange::Whole(shape);
    ASSERT_TRUE(DecodeChunk(shape, chunk->codec, chunk->payload, whole,
                            StridedOutput::Dense(shape, whole, read), scratch)
                    .has_value());
    EXPECT_EQ(read == raw, absolute == 0);
    EXPECT_EQ(chunk->decoded, absolute > 0 ? read : std::vector<std::byte>());
  }
}

TEST(ChunkCodec, HurriedProfilesTakeWordsThatFillTheirRangeAsTheyAre) {
  SampleMaker maker(kSeed + 3);
  const ChunkShape shape = {.dtype = Dtype::kU16,
                            .samples = 2,
                            .rank = 2,
                            .extent = {64, 96, 1, 1},
                            .fill_bits = 0};
  for (const std::uint32_t scale : {1U, 64U}) {
    std::vector<std::uint16_t> values;
    for (std::uint32_t i = 0; i < shape.elements(); ++i) {
      const auto value = static_cast<std::uint32_t>(i % 96 * 3 + i / 96 * 2 + maker.Below(4));
      values.push_back(static_cast<std::uint16_t>(maker.Below(50) == 0 ? 0 : value * scale));
    }
    const auto raw = std::as_bytes(std::span(values));
    for (const Profile profile : {Profile::kFast, Profile::kBalanced}) {
      const auto chunk = EncodeChunk(shape, raw, {.profile = profile, .bound = {}});
      ASSERT_TRUE(chunk.has_value());
      ASSERT_EQ(chunk->codec, ChunkCodec::kCoded);
      const auto head = ParseChunkHead(shape, chunk->payload);
      ASSERT_TRUE(head.has_value());
      EXPECT_EQ(head->stages.mask_count == 0 && head->stream_count == 1, scale == 1);
      const auto decoded =
          Decode(shape, chunk->codec, chunk->payload, ChunkRange::Whole(shape));
      EXPECT_TRUE(std::ranges::equal(decoded, raw));
    }
  }
}

// Noisy depth; one element in `hole_share` is zero.
std::vector<std::uint16_t> Depth(const ChunkShape& shape, std::uint32_t hole_share,
                                 SampleMaker& maker) {
  std::vector<std::uint16_t> values;
  for (std::uint32_t i = 0; i < shape.elements(); ++i) {
    const auto value = static_cast<std::uint32_t>(600 + i % 96 * 3 + i / 96 % 64 * 2);
    values.push_back(static_cast<std::uint16_t>(
        maker.Below(hole_share) == 0 ? 0 : value + maker.Below(40)));
  }
  return values;
}

TEST(ChunkCodec, DenseTakesAMaskOnlyWhereItSavesMuch) {
  SampleMaker maker(kSeed + 5);
  const ChunkShape shape = {.dtype = Dtype::kU16,
                            .samples = 4,
                            .rank = 2,
                            .extent = {64, 96, 1, 1},
                            .fill_bits = 0};
  for (const std::uint32_t hole_share : {2000U, 4U}) {
    for (const int low_bits : {0, 3}) {
      // Rare values in a wide range are no plain samples: then a mask of all samples is tried.
      std::vector<std::uint16_t> values = Depth(shape, hole_share, maker);
      for (std::uint16_t& value : values) value = static_cast<std::uint16_t>(value << low_bits);
      if (low_bits > 0) values.back() = 40001;
      const auto raw = std::as_bytes(std::span(values));
      const auto chunk = EncodeChunk(shape, raw, {.profile = Profile::kDense, .bound = {}});
      ASSERT_TRUE(chunk.has_value());
      ASSERT_EQ(chunk->codec, ChunkCodec::kCoded) << hole_share << " " << low_bits;
      const auto head = ParseChunkHead(shape, chunk->payload);
      ASSERT_TRUE(head.has_value());
      EXPECT_EQ(head->stages.mask_count, hole_share == 4 ? 1 : 0) << "shifted by " << low_bits;
      const auto decoded =
          Decode(shape, chunk->codec, chunk->payload, ChunkRange::Whole(shape));
      EXPECT_TRUE(std::ranges::equal(decoded, raw));
    }
  }
}

// How the only plane of a chunk is coded.
std::byte PlaneKind(const ChunkShape& shape, std::span<const std::byte> raw,
                    const ChunkOptions& options) {
  const auto chunk = EncodeChunk(shape, raw, options);
  EXPECT_TRUE(chunk.has_value() && chunk->codec == ChunkCodec::kCoded);
  EXPECT_TRUE(std::ranges::equal(
      Decode(shape, chunk->codec, chunk->payload, ChunkRange::Whole(shape)), raw));
  const auto head = ParseChunkHead(shape, chunk->payload);
  EXPECT_TRUE(head.has_value() && head->streams[0].coder == StreamCoder::kPlanes);
  return head->streams[0].body[0];
}

constexpr ChunkShape kPaceShape = {
    .dtype = Dtype::kU8, .samples = 4, .rank = 2, .extent = {96, 128, 1, 1}};

// A slope under noise: no predictor sees more of it than another.
std::vector<std::byte> NoisySlope(SampleMaker& maker) {
  std::vector<std::byte> noisy;
  for (std::uint32_t i = 0; i < kPaceShape.elements(); ++i) {
    const std::uint32_t x = i % 128, y = i / 128 % 96;
    noisy.push_back(static_cast<std::byte>(x + y / 2 + maker.Below(12)));
  }
  return noisy;
}

// Waves that go 2.5 columns a frame: filters of many neighbours, displaced, foresee them.
std::vector<std::byte> MovingWaves() {
  std::vector<std::byte> moving;
  for (std::uint32_t i = 0; i < kPaceShape.elements(); ++i) {
    const std::uint32_t x = i % 128, y = i / 128 % 96, t = i / (128 * 96);
    const double place = x + 2.5 * t, height = y;
    const double value = 128 + 60 * std::sin(0.9 * place + 0.7 * height) +
                         40 * std::sin(1.1 * height - 0.6 * place);
    moving.push_back(static_cast<std::byte>(static_cast<int>(value)));
  }
  return moving;
}

TEST(ChunkCodec, AutoTakesTheSlowerPlanesOnlyWhereTheySaveMuch) {
  SampleMaker maker(kSeed + 4);
  const std::vector<std::byte> noisy = NoisySlope(maker), moving = MovingWaves();
  EXPECT_EQ(PlaneKind(kPaceShape, noisy, {.profile = Profile::kDense}), kPlaneKindWavefront);
  EXPECT_EQ(PlaneKind(kPaceShape, noisy, {.profile = Profile::kAuto}), kPlaneKindBlockRans);
  EXPECT_EQ(PlaneKind(kPaceShape, moving, {.profile = Profile::kDense}), kPlaneKindWavefront);
  EXPECT_EQ(PlaneKind(kPaceShape, moving, {.profile = Profile::kAuto}), kPlaneKindWavefront);
}

TEST(ChunkCodec, WithinABoundSoDoesDense) {
  SampleMaker maker(kSeed + 4);
  ChunkShape shape = kPaceShape;
  shape.dtype = Dtype::kI32;
  // Multiples of a step of three are kept as they are, so that what comes back can be compared.
  const ErrorBound bound = {.mode = BoundMode::kAbsolute, .absolute = 1};
  const auto thrice = [](std::span<const std::byte> from) {
    std::vector<std::int32_t> values;
    for (const std::byte byte : from) values.push_back(3 * std::to_integer<std::int32_t>(byte));
    return values;
  };
  const auto noisy = thrice(NoisySlope(maker)), moving = thrice(MovingWaves());
  const auto kind = [&](const std::vector<std::int32_t>& values, Profile profile) {
    return PlaneKind(shape, std::as_bytes(std::span(values)),
                     {.profile = profile, .bound = bound});
  };
  for (const Profile profile : {Profile::kDense, Profile::kAuto}) {
    EXPECT_EQ(kind(noisy, profile), kPlaneKindBlockRans);
    EXPECT_EQ(kind(moving, profile), kPlaneKindWavefront);
  }
  EXPECT_EQ(kind(noisy, Profile::kLearned), kPlaneKindWavefront) << "for readers who can wait";
}

// --- every error branch -------------------------------------------------------------------

TEST(ChunkCodec, RefusesShapesThatAreNone) {
  const std::vector<ChunkShape> bad = {
      {.dtype = Dtype::kU8, .samples = 0},
      {.dtype = Dtype::kU8, .samples = 1, .rank = 5},
      {.dtype = Dtype::kU8, .samples = 1, .rank = 1, .extent = {0, 1, 1, 1}},
      {.dtype = Dtype::kU8, .samples = 1, .rank = 1, .extent = {2, 2, 1, 1}},
      {.dtype = Dtype::kU8, .samples = 1, .rank = 1, .extent = {4, 1, 1, 1}, .channel_axis = 1},
      {.dtype = Dtype::kU8, .samples = 1, .rank = 1, .extent = {4, 1, 1, 1}, .channel_axis = -2},
      {.dtype = Dtype::kU8, .samples = 2, .rank = 1, .extent = {(2U << 20) + 1, 1, 1, 1}},
      {.dtype = Dtype::kF64, .samples = 1, .rank = 2, .extent = {1U << 31, 1U << 31, 1, 1}},
      {.dtype = Dtype::kU8, .samples = 0xFFFF'FFFF, .rank = 1, .extent = {0xFFFF'FFFF, 1, 1, 1}},
  };
  for (const ChunkShape& shape : bad) {
    const Status status = CheckChunkShape(shape);
    ASSERT_FALSE(status.has_value()) << Describe(shape);
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_FALSE(EncodeChunk(shape, {}, {}).has_value());
    EXPECT_FALSE(DecodeChunk(shape, ChunkCodec::kStore, {}, {}, {}, {}).has_value());
  }
}

TEST(ChunkCodec, RefusesRangesAndOutputsThatDoNotFit) {
  const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 2, .rank = 1, .extent = {10, 1, 1, 1}};
  const std::vector<std::byte> raw(20, std::byte{1});
  std::vector<std::byte> memory(20), scratch(ChunkScratchBytes(shape));
  const ChunkRange whole = ChunkRange::Whole(shape);
  const StridedOutput dense = StridedOutput::Dense(shape, whole, memory);
  const auto code = [&](const ChunkRange& range, const StridedOutput& out,
                        std::span<std::byte> work) {
    const Status status = DecodeChunk(shape, ChunkCodec::kStore, raw, range, out, work);
    return status.has_value() ? ErrorCode::kUnknown : status.error().code();
  };
  EXPECT_EQ(code(whole, dense, scratch), ErrorCode::kUnknown);
  std::vector<ChunkRange> ranges(6, whole);
  ranges[0].sample_count = 0;
  ranges[1].sample_count = 3;
  ranges[2].first_sample = 1;
  ranges[3].first_sample = 0xFFFF'FFFF;
  ranges[4].extent[0] = 11;
  ranges[5].origin[0] = 1;
  for (const ChunkRange& range : ranges) {
    EXPECT_EQ(code(range, dense, scratch), ErrorCode::kInvalidArgument);
  }
  std::vector<StridedOutput> outs(4, dense);
  outs[0].memory = outs[0].memory.first(19);
  outs[1].sample_stride = 11;
  outs[2].axis_stride[0] = ~std::size_t{0} / 4;
  outs[3].memory = {};
  for (const StridedOutput& out : outs) {
    EXPECT_EQ(code(whole, out, scratch), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(code(whole, dense, std::span(scratch).first(scratch.size() - 1)),
            ErrorCode::kInvalidArgument);
}

TEST(ChunkCodec, RefusesInputOfAnotherLengthAndBadBounds) {
  const ChunkShape shape = {.dtype = Dtype::kF32, .samples = 1, .rank = 1, .extent = {4, 1, 1, 1}};
  const std::vector<std::byte> raw(16);
  EXPECT_FALSE(EncodeChunk(shape, std::span(raw).first(15), {}).has_value());
  const std::vector<ErrorBound> bad = {
      {.mode = BoundMode::kAbsolute, .absolute = -1},
      {.mode = BoundMode::kAbsolute, .absolute = std::nan("")},
      {.mode = BoundMode::kChunkRelative, .relative = HUGE_VAL},
      {.mode = BoundMode::kChunkRelative, .relative = -0.1},
      {.mode = static_cast<BoundMode>(6), .absolute = 1},
  };
  for (const ErrorBound& bound : bad) {
    const auto chunk = EncodeChunk(shape, raw, {.profile = Profile::kDense, .bound = bound});
    ASSERT_FALSE(chunk.has_value());
    EXPECT_EQ(chunk.error().code(), ErrorCode::kInvalidArgument);
  }
  const ChunkShape integers = {
      .dtype = Dtype::kI32, .samples = 1, .rank = 1, .extent = {4, 1, 1, 1}};
  const ChunkOptions pointwise = {.profile = Profile::kDense,
                                  .bound = {.mode = BoundMode::kPointwise, .relative = 0.1}};
  EXPECT_FALSE(EncodeChunk(integers, raw, pointwise).has_value());
  EXPECT_TRUE(EncodeChunk(shape, raw, pointwise).has_value());
}

}  // namespace forebay::compress::chunk_codec_test
