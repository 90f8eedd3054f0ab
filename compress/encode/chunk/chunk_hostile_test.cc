// DecodeChunk under payloads that no encoder wrote: typed errors, no byte outside the output, no
// allocation beyond 64 KiB.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/encode/chunk/coded_chunk_encoder.h"
#include "compress/encode/testing/allocation_watch.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/chunk/quantiser.h"

namespace forebay::compress::chunk_hostile_test {

constexpr std::uint32_t kSeed = 20261124;
constexpr std::size_t kGuard = 256;
constexpr std::byte kCanary{0xC7};

struct Specimen {
  ChunkShape shape;
  std::vector<std::byte> payload;
};

class HostileChunk : public ::testing::Test {
 protected:
  // Decodes into guarded memory with scratch of exactly the declared size.
  ErrorCode Decode(const ChunkShape& shape, std::span<const std::byte> payload,
                   ChunkCodec codec = ChunkCodec::kCoded) {
    memory_.assign(shape.bytes() + 2 * kGuard, kCanary);
    scratch_.resize(ChunkScratchBytes(shape));
    const std::span out = std::span(memory_).subspan(kGuard, shape.bytes());
    const ChunkRange whole = ChunkRange::Whole(shape);
    WatchAllocations();
    const Status status = DecodeChunk(shape, codec, payload, whole,
                                      StridedOutput::Dense(shape, whole, out), scratch_);
    EXPECT_LE(LargestAllocation(), std::size_t{64} << 10);
    EXPECT_TRUE(std::all_of(memory_.begin(), memory_.begin() + kGuard, IsCanary));
    EXPECT_TRUE(std::all_of(memory_.end() - kGuard, memory_.end(), IsCanary));
    if (status.has_value()) return ErrorCode::kUnknown;
    EXPECT_TRUE(status.error().code() == ErrorCode::kDataLoss ||
                status.error().code() == ErrorCode::kUnimplemented)
        << status.error().ToString();
    return status.error().code();
  }

  // What each sample decodes to when nothing else is wanted, one after the other; empty where one
  // of them is refused.
  std::vector<std::byte> DecodeAlone(const ChunkShape& shape, std::span<const std::byte> payload) {
    std::vector<std::byte> samples(shape.bytes());
    scratch_.resize(ChunkScratchBytes(shape));
    for (std::uint32_t sample = 0; sample < shape.samples; ++sample) {
      ChunkRange range = ChunkRange::Whole(shape);
      range.first_sample = sample;
      range.sample_count = 1;
      const std::span out =
          std::span(samples).subspan(sample * shape.sample_bytes(), shape.sample_bytes());
      if (!DecodeChunk(shape, ChunkCodec::kCoded, payload, range,
                       StridedOutput::Dense(shape, range, out), scratch_)
               .has_value()) {
        return {};
      }
    }
    return samples;
  }

  std::vector<std::byte> Decoded(const ChunkShape& shape) const {
    const auto begin = memory_.begin() + kGuard;
    return {begin, begin + static_cast<std::ptrdiff_t>(shape.bytes())};
  }

  static bool IsCanary(std::byte byte) { return byte == kCanary; }

  // Payloads that use every stage and coder between them.
  static std::vector<Specimen> Specimens() {
    std::vector<Specimen> specimens;
    SampleMaker maker(kSeed);
    const auto add = [&](ChunkShape shape, SampleKind kind, const ErrorBound& bound) {
      const auto raw = maker.Make(shape, kind);
      auto payload =
          EncodeCodedChunk(shape, raw, {.profile = Profile::kDense, .bound = bound});
      EXPECT_TRUE(payload.has_value());
      specimens.push_back({shape, std::move(*payload)});
    };
    ChunkShape image = {.dtype = Dtype::kU8, .samples = 2, .rank = 3, .extent = {24, 48, 3, 1}};
    image.channel_axis = 2;
    add(image, SampleKind::kSmooth, {});
    ChunkShape depth = {.dtype = Dtype::kU16, .samples = 2, .rank = 2, .extent = {64, 64, 1, 1}};
    depth.fill_bits = 0;
    add(depth, SampleKind::kHoles, {});
    add(depth, SampleKind::kSteps, {});
    add(depth, SampleKind::kFewValues, {});
    ChunkShape field = {.dtype = Dtype::kF32, .samples = 2, .rank = 2, .extent = {64, 64, 1, 1}};
    field.fill_bits = std::bit_cast<std::uint32_t>(-1e34F);
    add(field, SampleKind::kHoles, {.mode = BoundMode::kAbsolute, .absolute = 0.25});
    add(field, SampleKind::kSmooth, {.mode = BoundMode::kPointwise, .relative = 0.01});
    add(field, SampleKind::kOneOutlier, {.mode = BoundMode::kChunkRelative, .relative = 0.001});
    add(field, SampleKind::kSmooth, {});
    auto raw = maker.Make(field, SampleKind::kSmooth);
    std::memset(raw.data() + 4000, 0xFF, 4);  // too few to be a mask: escapes
    std::memset(raw.data() + 9000, 0x00, 4);
    raw[9000] = std::byte{1};
    auto payload = EncodeCodedChunk(
        field, raw,
        {.profile = Profile::kDense, .bound = {.mode = BoundMode::kAbsolute, .absolute = 1}});
    EXPECT_TRUE(payload.has_value());
    specimens.push_back({field, std::move(*payload)});
    ChunkShape wide = {.dtype = Dtype::kI64, .samples = 3, .rank = 1, .extent = {200, 1, 1, 1}};
    add(wide, SampleKind::kSmooth, {});
    return specimens;
  }

  std::vector<std::byte> memory_, scratch_;
};

TEST_F(HostileChunk, SpecimensUseEveryStageAndCoder) {
  std::uint32_t stages = 0, coders = 0;
  for (const Specimen& specimen : Specimens()) {
    EXPECT_EQ(Decode(specimen.shape, specimen.payload), ErrorCode::kUnknown);
    const auto head = ParseChunkHead(specimen.shape, specimen.payload);
    ASSERT_TRUE(head.has_value());
    const ChunkStages& s = head->stages;
    stages |= (s.is_quantised() ? 1U : 0) | (s.mask_count > 0 ? 2U : 0) |
              (s.escape_count > 0 ? 4U : 0) | (s.offset != 0 ? 8U : 0) |
              (s.dictionary_count > 0 ? 16U : 0) | (s.shift != 0 ? 32U : 0);
    for (std::uint32_t i = 0; i < head->stream_count; ++i) {
      coders |= 1U << static_cast<unsigned>(head->streams[i].coder);
    }
  }
  EXPECT_EQ(stages, 63U);
  EXPECT_EQ(coders & 0b01011U, 0b01011U);
}

TEST_F(HostileChunk, EveryTruncationIsAnError) {
  for (const Specimen& specimen : Specimens()) {
    const std::span<const std::byte> whole = specimen.payload;
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 200 ? 1 : 97) {
      EXPECT_NE(Decode(specimen.shape, whole.first(bytes)), ErrorCode::kUnknown) << bytes;
    }
  }
}

TEST_F(HostileChunk, EveryHeadByteAtItsBoundariesIsSafe) {
  for (const Specimen& specimen : Specimens()) {
    const std::size_t head = std::min<std::size_t>(specimen.payload.size(), 120);
    for (std::size_t at = 0; at < head; ++at) {
      for (const int value : {0, 1, 2, 7, 8, 9, 16, 17, 0x3F, 0x7F, 0x80, 0xFE, 0xFF}) {
        auto payload = specimen.payload;
        payload[at] = static_cast<std::byte>(value);
        Decode(specimen.shape, payload);
      }
    }
  }
}

TEST_F(HostileChunk, FlippedBitsAreSafe) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SampleMaker maker(kSeed + 1);
  std::size_t errors = 0;
  for (const Specimen& specimen : Specimens()) {
    for (int i = 0; i < 300; ++i) {
      auto payload = specimen.payload;
      for (std::uint64_t flips = 1 + maker.Below(3); flips > 0; --flips) {
        payload[maker.Below(payload.size())] ^= static_cast<std::byte>(1 << maker.Below(8));
      }
      errors += Decode(specimen.shape, payload) != ErrorCode::kUnknown ? 1 : 0;
    }
  }
  EXPECT_GT(errors, 100U);
}

TEST_F(HostileChunk, EachHeadFieldBeyondItsBoundIsATypedError) {
  const ChunkShape shape = {.dtype = Dtype::kF32, .samples = 2, .rank = 2,
                            .extent = {64, 64, 1, 1}};
  const std::vector<std::byte> samples(2 * 64 * 64 * 2, std::byte{1});
  CodedHead good;
  good.stages.plane_count = 1;
  good.stages.plane_bits[0] = 16;
  good.stream_count = 1;
  good.streams[0] = {.coder = StreamCoder::kStore,
                     .raw_bytes = static_cast<std::uint32_t>(samples.size()), .body = samples};
  EXPECT_EQ(Decode(shape, SerialiseChunk(good)), ErrorCode::kUnknown);
  const auto expect = [&](ErrorCode code, auto change) {
    CodedHead head = good;
    change(head);
    EXPECT_EQ(Decode(shape, SerialiseChunk(head)), code);
  };
  using Head = CodedHead;
  const auto bad = ErrorCode::kDataLoss, newer = ErrorCode::kUnimplemented;
  expect(bad, [](Head& h) { h.stages.plane_bits[0] = 17; });
  expect(bad, [](Head& h) { h.stages.plane_bits[0] = 0; });
  expect(bad, [](Head& h) { h.stages.plane_bits[0] = 8; });  // another size of plane
  expect(bad, [](Head& h) { h.stages.shift = 32; });
  expect(bad, [](Head& h) { h.stages.escape_count = 8193; });
  expect(bad, [](Head& h) { h.stages.escape_count = 8192; });  // no streams for them
  expect(bad, [](Head& h) { h.stages.dictionary_count = 8193; });
  expect(bad, [](Head& h) { h.stages.colour = ColourKind::kGreen; });  // one channel
  expect(newer, [](Head& h) { h.stages.colour = static_cast<ColourKind>(3); });
  expect(bad, [](Head& h) { h.stages.mask_count = 1; });
  expect(bad, [](Head& h) {
    h.stages.mask_count = 1;
    h.stages.masks[0].pattern = 1ULL << 32;
  });
  for (const double step : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    expect(bad, [&](Head& h) {
      h.stages.quantiser = {.kind = QuantiserKind::kLinear, .linear_step = step};
    });
  }
  for (const std::uint64_t step : std::vector<std::uint64_t>{0, (1ULL << 40) + 1, ~0ULL}) {
    expect(bad, [&](Head& h) {
      h.stages.quantiser = {.kind = QuantiserKind::kLogarithm, .integer_step = step};
    });
  }
  expect(bad, [](Head& h) {  // of integers
    h.stages.quantiser = {.kind = QuantiserKind::kInteger, .integer_step = 3};
  });
  expect(newer, [](Head& h) { h.stages.quantiser.kind = static_cast<QuantiserKind>(4); });
  expect(newer, [](Head& h) { h.streams[0].coder = static_cast<StreamCoder>(5); });
  expect(bad, [](Head& h) { h.streams[0].raw_bytes = 0xFFFF'FFFF; });
  expect(bad, [](Head& h) { h.streams[0].raw_bytes -= 1; });
  expect(bad, [](Head& h) { h.streams[0].body = h.streams[0].body.first(100); });
  expect(bad, [](Head& h) { h.streams[0].coder = StreamCoder::kConstant; });
  expect(bad, [](Head& h) { h.streams[0].coder = StreamCoder::kZstd; });
  expect(bad, [](Head& h) { h.streams[0].coder = StreamCoder::kLz4; });
  expect(bad, [](Head& h) { h.streams[0].coder = StreamCoder::kPlanes; });
}

TEST_F(HostileChunk, StagesOutOfOrderOrUnknownAndBytesBehindTheEndAreErrors) {
  const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 1, .rank = 1, .extent = {4, 1, 1, 1}};
  const auto decode = [&](std::initializer_list<int> bytes) {
    std::vector<std::byte> payload;
    for (const int byte : bytes) payload.push_back(static_cast<std::byte>(byte));
    return Decode(shape, payload);
  };
  EXPECT_EQ(decode({1, 0, 0}), ErrorCode::kUnknown);  // no planes: all codes are 0
  EXPECT_EQ(decode({1, 0, 0, 0}), ErrorCode::kDataLoss);
  EXPECT_EQ(decode({2, 0, 0}), ErrorCode::kUnimplemented);
  EXPECT_EQ(decode({1, 1, 4, 5, 0, 0}), ErrorCode::kUnknown);
  EXPECT_EQ(decode({1, 2, 4, 5, 0, 4, 5, 0, 0}), ErrorCode::kDataLoss);
  EXPECT_EQ(decode({1, 1, 7, 0}), ErrorCode::kUnimplemented);
  EXPECT_EQ(decode({1, 1, 0, 0}), ErrorCode::kDataLoss);
  EXPECT_EQ(decode({1, 0, 1, 8, 4, 4, 1, 77}), ErrorCode::kUnknown);  // a constant plane
  EXPECT_EQ(decode({1, 0, 1, 8, 3, 4, 1, 0}), ErrorCode::kDataLoss);  // too narrow for planes
  EXPECT_EQ(decode({1, 0, 2, 8, 8, 0, 4, 4}), ErrorCode::kDataLoss);  // more than an element
  EXPECT_EQ(decode({1, 0, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1}), ErrorCode::kDataLoss);
  // A code beyond the dictionary of one value.
  EXPECT_EQ(decode({1, 1, 5, 1, 1, 1, 0, 1, 1, 0, 4, 4, 9, 0, 0, 0, 0}), ErrorCode::kUnknown);
  EXPECT_EQ(decode({1, 1, 5, 1, 1, 1, 0, 1, 1, 0, 4, 4, 9, 0, 1, 0, 0}), ErrorCode::kDataLoss);
  // Masks: two runs of two; runs that end early, beyond the chunk, are empty.
  EXPECT_EQ(decode({1, 1, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2}),
            ErrorCode::kUnknown);
  for (const auto& [first, second] : {std::pair{2, 1}, {2, 3}, {2, 0}, {5, 1}}) {
    EXPECT_EQ(decode({1, 1, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, first, second}),
              ErrorCode::kDataLoss);
  }
  // Escapes: places 1 and 3; beyond the chunk; a place too many.
  EXPECT_EQ(decode({1, 1, 3, 2, 0, 0, 2, 2, 0, 2, 2, 1, 1, 8, 9}), ErrorCode::kUnknown);
  EXPECT_EQ(memory_[kGuard + 3], std::byte{9});
  EXPECT_EQ(decode({1, 1, 3, 2, 0, 0, 2, 2, 0, 2, 2, 1, 2, 8, 9}), ErrorCode::kDataLoss);
  EXPECT_EQ(decode({1, 1, 3, 2, 0, 0, 3, 3, 0, 2, 2, 1, 1, 0, 8, 9}), ErrorCode::kDataLoss);
}

// Indices of 4 bits, stored in bytes with bits above them: 0x1B is 11, in the fast way and in the
// common one, which a sample beyond the dictionary chooses for all that are decoded with it.
TEST_F(HostileChunk, SamplesAloneAndTogetherDropBitsBeyondTheirPlane) {
  const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 2, .rank = 1,
                            .extent = {100, 1, 1, 1}};
  constexpr std::uint32_t kEntries = 16;
  CodedHead head;
  head.stages.dictionary_count = kEntries;
  head.stages.plane_count = 1;
  head.stages.plane_bits[0] = 4;
  head.stream_count = 2;
  const std::vector<std::byte> dictionary(kEntries);  // the value at each place is its number
  std::vector<std::byte> samples(shape.bytes(), std::byte{0x1B});
  samples[150] = std::byte{0xFB};
  head.streams[0] = {.coder = StreamCoder::kStore, .raw_bytes = kEntries, .body = dictionary};
  head.streams[1] = {.coder = StreamCoder::kStore,
                     .raw_bytes = static_cast<std::uint32_t>(samples.size()), .body = samples};
  const auto payload = SerialiseChunk(head);
  ASSERT_EQ(Decode(shape, payload), ErrorCode::kUnknown);
  EXPECT_EQ(Decoded(shape), std::vector<std::byte>(shape.bytes(), std::byte{11}));
  EXPECT_EQ(DecodeAlone(shape, payload), Decoded(shape));
}

// What an index of so many bits cannot name is no part of a dictionary that anybody wrote. One
// value needs no bits at all.
TEST_F(HostileChunk, ADictionaryHasNoMoreValuesThanItsCodesCanName) {
  const ChunkShape shape = {.dtype = Dtype::kU16, .samples = 1, .rank = 1,
                            .extent = {300, 1, 1, 1}};
  const auto decode = [&](std::uint8_t bits, std::uint32_t entries) {
    CodedHead head;
    head.stages.dictionary_count = entries;
    head.stages.plane_count = bits > 0 ? 1 : 0;
    head.stages.plane_bits[0] = bits;
    head.stream_count = bits > 0 ? 2 : 1;
    const std::vector<std::byte> dictionary(entries), samples(300 * (bits > 8 ? 2 : 1));
    head.streams[0] = {.coder = StreamCoder::kStore, .raw_bytes = entries, .body = dictionary};
    head.streams[1] = {.coder = StreamCoder::kStore,
                       .raw_bytes = static_cast<std::uint32_t>(samples.size()), .body = samples};
    return Decode(shape, SerialiseChunk(head));
  };
  EXPECT_EQ(decode(0, 1), ErrorCode::kUnknown);
  EXPECT_EQ(decode(0, 2), ErrorCode::kDataLoss);
  EXPECT_EQ(decode(4, 16), ErrorCode::kUnknown);
  EXPECT_EQ(decode(4, 17), ErrorCode::kDataLoss);
  EXPECT_EQ(decode(8, 256), ErrorCode::kUnknown);
  EXPECT_EQ(decode(8, 257), ErrorCode::kDataLoss);
  EXPECT_EQ(decode(16, 300), ErrorCode::kUnknown);
}

// Half of a range of no bits would be 1 shifted by -1.
TEST_F(HostileChunk, ColoursNeedPlanes) {
  const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 1, .rank = 2, .extent = {4, 3, 1, 1},
                            .channel_axis = 1};
  for (const ColourKind kind : {ColourKind::kGreen, ColourKind::kYCoCg}) {
    CodedHead head;
    head.stages.colour = kind;
    EXPECT_EQ(Decode(shape, SerialiseChunk(head)), ErrorCode::kDataLoss);
    head.stages.plane_count = 1;
    head.stages.plane_bits[0] = 1;
    head.stream_count = 3;
    const std::vector<std::byte> sample(1);
    for (std::size_t c = 0; c < 3; ++c) {
      head.streams[c] = {.coder = StreamCoder::kConstant, .raw_bytes = 4, .body = sample};
    }
    EXPECT_EQ(Decode(shape, SerialiseChunk(head)), ErrorCode::kUnknown);
  }
}

// 26 bytes whose offset is the smallest number of 64 bits; the dev and fuzz presets, which have
// UBSan, stop where it is negated as a signed one.
TEST_F(HostileChunk, TheSmallestNumberHasALogarithm) {
  const ChunkShape shape = {.dtype = Dtype::kF64, .samples = 2, .rank = 1,
                            .extent = {30, 1, 1, 1}};
  CodedHead head;
  head.stages.quantiser = {.kind = QuantiserKind::kLogarithm, .integer_step = 1, .origin = 1};
  head.stages.offset = std::uint64_t{1} << 63;
  const auto payload = SerialiseChunk(head);
  ASSERT_EQ(payload.size(), 26U);
  ASSERT_EQ(Decode(shape, payload), ErrorCode::kUnknown);
  // The magnitude is 2^63, and so is the logarithm, which wraps to the smallest.
  const double value = -PowerOfTwo(INT64_MIN);
  std::vector<std::byte> expected(shape.bytes());
  for (std::size_t i = 0; i < shape.elements(); ++i) {
    std::memcpy(expected.data() + 8 * i, &value, 8);
  }
  EXPECT_EQ(Decoded(shape), expected);
}

TEST_F(HostileChunk, PlainCodecsRefuseOtherSizes) {
  const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 1, .rank = 1,
                            .extent = {5000, 1, 1, 1}};
  const ChunkShape longer = {.dtype = Dtype::kU8, .samples = 1, .rank = 1,
                             .extent = {5001, 1, 1, 1}};
  const auto raw = SampleMaker(kSeed).Make(shape, SampleKind::kFewValues);
  for (const Profile profile : {Profile::kFast, Profile::kBalanced}) {
    const auto chunk = EncodeChunk(shape, raw, {.profile = profile});
    ASSERT_TRUE(chunk.has_value());
    for (std::size_t bytes = 0; bytes < chunk->payload.size(); ++bytes) {
      EXPECT_EQ(Decode(shape, std::span(chunk->payload).first(bytes), chunk->codec),
                ErrorCode::kDataLoss);
    }
    EXPECT_EQ(Decode(longer, chunk->payload, chunk->codec), ErrorCode::kDataLoss);
  }
  for (const ChunkCodec codec : {ChunkCodec::kStore, ChunkCodec::kZstd, ChunkCodec::kLz4}) {
    EXPECT_EQ(Decode(longer, raw, codec), ErrorCode::kDataLoss);
  }
  EXPECT_EQ(Decode(shape, raw, static_cast<ChunkCodec>(4)), ErrorCode::kUnimplemented);
}

}  // namespace forebay::compress::chunk_hostile_test
