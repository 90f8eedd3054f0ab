// The small reversible maps, for every input where there are few enough: colours, runs, channel
// splits, geometry.
#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/block/block_row_copy.h"
#include "compress/decode/chunk/byte_table.h"
#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/decode/chunk/mask_decoder.h"
#include "compress/decode/isa.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/encode/chunk/mask_encoder.h"
#include "compress/encode/chunk/plane_streams.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/format/chunk/colour.h"
#include "proto/contract/limits.h"

namespace forebay::compress::stage_kernels_test {

constexpr std::uint32_t kSeed = 20261125;

// Every triple of `bits` bits, there and back. Those of one first channel at once; the planes of
// the others are the same for all of them.
template <typename T>
void ExpectColoursReverse(ColourKind kind, std::uint32_t bits) {
  const std::size_t levels = std::size_t{1} << bits;
  std::vector<T> second, third;
  for (std::size_t i = 0; i < levels * levels; ++i) {
    second.push_back(static_cast<T>(i / levels));
    third.push_back(static_cast<T>(i % levels));
  }
  for (std::size_t red = 0; red < levels; ++red) {
    const std::vector<T> first(levels * levels, static_cast<T>(red));
    auto x = first, y = second, z = third;
    ForwardColour(kind, bits, x.size(), x.data(), y.data(), z.data());
    for (const auto* plane : {&x, &y, &z}) {
      ASSERT_LT(*std::max_element(plane->begin(), plane->end()), levels);
    }
    InverseColour(kind, bits, x.size(), x.data(), y.data(), z.data());
    ASSERT_EQ(x, first);
    ASSERT_EQ(y, second);
    ASSERT_EQ(z, third);
  }
}

TEST(Colour, EveryTripleOfBytesComesBack) {
  for (const ColourKind kind : {ColourKind::kGreen, ColourKind::kYCoCg}) {
    for (std::uint32_t bits = 1; bits <= 8; ++bits) ExpectColoursReverse<std::uint8_t>(kind, bits);
  }
}

TEST(Colour, WideTriplesComeBack) {
  SampleMaker maker(kSeed);
  for (const ColourKind kind : {ColourKind::kGreen, ColourKind::kYCoCg}) {
    for (std::uint32_t bits = 9; bits <= 16; ++bits) {
      const std::uint64_t top = (1ULL << bits) - 1;
      std::vector<std::uint16_t> planes[3];
      for (int i = 0; i < 4096; ++i) {
        for (auto& plane : planes) {
          // A third of them at the ends of the range, where differences wrap.
          const std::uint64_t value = maker.Below(3) == 0 ? top - top * maker.Below(2)
                                                          : maker.Below(top + 1);
          plane.push_back(static_cast<std::uint16_t>(value));
        }
      }
      auto x = planes[0], y = planes[1], z = planes[2];
      ForwardColour(kind, bits, x.size(), x.data(), y.data(), z.data());
      InverseColour(kind, bits, x.size(), x.data(), y.data(), z.data());
      EXPECT_EQ(x, planes[0]);
      EXPECT_EQ(y, planes[1]);
      EXPECT_EQ(z, planes[2]);
    }
  }
}

TEST(Mask, EveryMaskOfTenElementsComesBackWithEveryPeriodAndPrefix) {
  for (std::uint32_t bits = 0; bits < 1U << 10; ++bits) {
    std::vector<std::uint8_t> mask(10);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = bits >> i & 1;
    for (std::size_t period = 0; period <= 10; ++period) {
      const EncodedRuns runs = EncodeRuns(mask, period);
      for (std::size_t prefix = 0; prefix <= mask.size(); ++prefix) {
        std::vector<std::uint8_t> decoded(prefix, 9);
        ASSERT_TRUE(
            ExpandRuns(runs.bytes, mask.size(), runs.temporal ? period : 0, decoded).has_value());
        ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), mask.begin()));
      }
    }
  }
}

TEST(Mask, RunsOfAllLengthsComeBackWithEveryPrefix) {
  SampleMaker maker(kSeed + 1);
  for (const std::size_t period : std::initializer_list<std::size_t>{0, 70, 333}) {
    std::vector<std::uint8_t> mask;
    for (std::uint8_t value = 0; mask.size() < 1000; value ^= 1) {
      mask.insert(mask.end(), 1 + maker.Below(maker.Below(4) == 0 ? 200 : 70), value);
    }
    const EncodedRuns runs = EncodeRuns(mask, period);
    for (std::size_t prefix = 0; prefix <= mask.size(); prefix += 1 + maker.Below(9)) {
      std::vector<std::uint8_t> decoded(prefix, 9);
      ASSERT_TRUE(
          ExpandRuns(runs.bytes, mask.size(), runs.temporal ? period : 0, decoded).has_value());
      ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), mask.begin()))
          << "period " << period << ", " << prefix << " elements, seed " << kSeed;
    }
  }
}

TEST(Mask, AMaskThatStandsStillIsCodedOnce) {
  std::vector<std::uint8_t> mask(40 * 500);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 500 / 7 % 2 == 0 ? 1 : 0;
  const EncodedRuns runs = EncodeRuns(mask, 500);
  EXPECT_TRUE(runs.temporal);
  EXPECT_LT(runs.bytes.size(), 100U);
}

TEST(Holes, AreFilledFromTheLeftThenFromAbove) {
  const ChunkShape shape = {.dtype = Dtype::kU16, .samples = 1, .rank = 2, .extent = {2, 3, 1, 1}};
  std::vector<std::uint64_t> codes = {0, 5, 0, 0, 0, 7};
  const std::vector<std::uint8_t> holes = {1, 0, 1, 1, 1, 0};
  FillHoles(GeometryOf(shape), holes, codes);
  EXPECT_EQ(codes, (std::vector<std::uint64_t>{5, 5, 5, 5, 5, 7}));
}

TEST(Holes, AFrequentOutlierIsOneAndANeighbourOfTheOthersIsNot) {
  ChunkShape shape = {.dtype = Dtype::kU16, .samples = 1, .rank = 1, .extent = {1000, 1, 1, 1}};
  std::vector<std::uint64_t> bits(1000);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i % 3 == 0 ? 0 : 1000 + i % 50;
  EXPECT_EQ(MaskPatterns(shape, bits, HoleSearch::kOutliers), std::vector<std::uint64_t>{0});
  EXPECT_TRUE(MaskPatterns(shape, bits, HoleSearch::kDeclared).empty());
  for (std::uint64_t& value : bits) value = value == 0 ? 999 : value;
  EXPECT_TRUE(MaskPatterns(shape, bits, HoleSearch::kOutliers).empty());
  shape.fill_bits = 1003;
  EXPECT_EQ(MaskPatterns(shape, bits, HoleSearch::kOutliers), std::vector<std::uint64_t>{1003});
}

TEST(Geometry, FollowsTheAxesAndStacksSmallFrames) {
  ChunkShape shape = {.dtype = Dtype::kU8, .samples = 3, .rank = 4, .extent = {5, 64, 80, 3}};
  shape.channel_axis = 3;
  ChunkGeometry g = GeometryOf(shape);
  EXPECT_EQ(std::tuple(g.channels, g.frames, g.rows, g.columns), std::tuple(3U, 15U, 64U, 80U));
  EXPECT_EQ(std::tuple(g.outer_extent, g.inner_extent), std::tuple(5U * 64 * 80, 1U));
  shape.channel_axis = 0;  // of five entries: an axis like others
  g = GeometryOf(shape);
  EXPECT_EQ(std::tuple(g.channels, g.frames, g.rows, g.columns),
            std::tuple(1U, 1U, 3U * 5 * 64 * 80, 3U));
  EXPECT_FALSE(g.allows_planes);
  shape = {.dtype = Dtype::kU8, .samples = 10, .rank = 2, .extent = {28, 28, 1, 1}};
  g = GeometryOf(shape);
  EXPECT_EQ(std::tuple(g.frames, g.rows, g.columns), std::tuple(1U, 280U, 28U));
  EXPECT_TRUE(g.allows_planes);
  shape = {.dtype = Dtype::kF32, .samples = 7};
  g = GeometryOf(shape);
  EXPECT_EQ(std::tuple(g.frames, g.rows, g.columns), std::tuple(1U, 7U, 1U));
}

TEST(Geometry, PixelsAndElementsAgreeInEveryShape) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SampleMaker maker(kSeed);
  for (int i = 0; i < 500; ++i) {
    const ChunkShape shape = maker.Shape(Dtype::kU8);
    const ChunkGeometry g = GeometryOf(shape);
    ASSERT_EQ(g.pixels() * g.channels, shape.elements()) << Describe(shape);
    ASSERT_EQ(g.sample_pixels * shape.samples, g.pixels()) << Describe(shape);
    std::vector<std::uint64_t> codes(shape.elements());
    std::iota(codes.begin(), codes.end(), 0U);
    const auto channels = SplitChannels(g, codes);
    std::size_t sum = 0;
    for (const auto& channel : channels) {
      ASSERT_TRUE(std::is_sorted(channel.begin(), channel.end()));
      sum += channel.size();
    }
    ASSERT_EQ(sum, codes.size());
  }
}

// Rows of whole blocks, copied in order to `to` and not a byte further.
template <typename T>
void ExpectRowsCopied(std::size_t columns) {
  constexpr std::size_t kRows = 5, kBeside = 40;
  const std::size_t stride =
      CountBlocks(static_cast<std::uint32_t>(columns), kBlockColumns) * std::size_t{kBlockColumns};
  std::vector<T> rows(kRows * stride);
  std::iota(rows.begin(), rows.end(), T{1});
  std::vector<T> to(kRows * columns + kBeside, T{0xC7});
  const auto bytes = std::as_writable_bytes(std::span(to)).first(kRows * columns * sizeof(T));
  for (std::size_t y = 0; y < kRows; ++y) {
    CopyBlockRow(&rows[y * stride], columns, bytes.subspan(y * columns * sizeof(T)));
  }
  for (std::size_t i = 0; i < kRows * columns; ++i) {
    ASSERT_EQ(to[i], rows[i / columns * stride + i % columns]) << i << " of " << columns;
  }
  EXPECT_EQ(std::count(to.end() - kBeside, to.end(), T{0xC7}), std::ptrdiff_t{kBeside});
}

TEST(BlockRows, AreCopiedWithoutWhatIsBesideTheFrame) {
  for (std::size_t columns = 1; columns < 70; ++columns) {
    ExpectRowsCopied<std::uint8_t>(columns);
    ExpectRowsCopied<std::uint16_t>(columns);
  }
}

TEST(ByteTables, MapEveryByteAndNothingBeside) {
  SampleMaker maker(kSeed);
  for (std::size_t count = 0; count < 300; ++count) {
    // All sizes of tables are there, the full one with 255 bytes.
    ByteTable table{.entries = 1 + count % 256};
    for (std::size_t i = 0; i < table.entries; ++i) {
      table.bytes[i] = static_cast<std::uint8_t>(maker.Bits());
    }
    const std::uint64_t levels = 1 + maker.Below(256);  // beyond the entries, too
    std::vector<std::uint8_t> from(count), expected(count + 64, 0xC7);
    std::uint8_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      from[i] = static_cast<std::uint8_t>(maker.Below(levels));
      expected[i] = table.bytes[from[i]];
      largest = std::max(largest, from[i]);
    }
    for (const Isa isa : AvailableIsas()) {
      std::vector<std::uint8_t> to(count + 64, 0xC7);
      ASSERT_EQ(MapBytes(table, from, to.data(), isa), largest) << count;
      ASSERT_EQ(to, expected) << count << " bytes, seed " << kSeed;
    }
  }
}

TEST(ChunkLimit, TheLargestChunksInTheirNarrowestShapesComeBack) {
  for (const std::uint32_t columns : {1U, 24U, 4096U}) {
    const auto rows = static_cast<std::uint32_t>(limits::kChunkBytesMax / 2 / columns);
    const ChunkShape shape = {
        .dtype = Dtype::kU16, .samples = 1, .rank = 2, .extent = {rows, columns, 1, 1}};
    ASSERT_TRUE(CheckChunkShape(shape).has_value());
    const auto raw = SampleMaker(kSeed).Make(shape, SampleKind::kSteps);
    const auto chunk = EncodeChunk(shape, raw, {.profile = Profile::kFast});
    ASSERT_TRUE(chunk.has_value()) << chunk.error().ToString();
    std::vector<std::byte> decoded(raw.size()), scratch(ChunkScratchBytes(shape));
    const ChunkRange whole = ChunkRange::Whole(shape);
    ASSERT_TRUE(DecodeChunk(shape, chunk->codec, chunk->payload, whole,
                            StridedOutput::Dense(shape, whole, decoded), scratch)
                    .has_value());
    EXPECT_EQ(decoded, raw);
  }
}

// What a thread of a reader must set aside for the largest chunks of one frame, of every type and
// width; widths that make the most of it first.
TEST(ChunkLimit, ChunksOfOneFrameTakeNoMoreMemoryThanTheLimit) {
  std::size_t largest = 0;
  for (std::uint64_t number = 0; number <= 10; ++number) {
    const auto dtype = DtypeFromNumber(number);
    ASSERT_TRUE(dtype.has_value()) << number;
    for (std::uint32_t columns = 1; columns < 2000; columns += columns < 300 ? 1 : 97) {
      const auto rows =
          static_cast<std::uint32_t>(limits::kChunkBytesMax / DtypeBytes(*dtype) / columns);
      const ChunkShape shape = {
          .dtype = *dtype, .samples = 1, .rank = 2, .extent = {rows, columns, 1, 1}};
      const std::size_t bytes = ChunkScratchBytes(shape);
      ASSERT_LE(bytes, limits::kChunkScratchBytesMax) << Describe(shape);
      largest = std::max(largest, bytes);
    }
  }
  EXPECT_GT(largest, limits::kChunkScratchBytesMax / 2) << "the limit is of another size";
}

// So that the largest chunk of a field stands for all of them.
TEST(ChunkLimit, FewerSamplesTakeNoMoreMemory) {
  SampleMaker maker(kSeed);
  for (int round = 0; round < 300; ++round) {
    ChunkShape shape = {.dtype = *DtypeFromNumber(maker.Below(11)), .rank = 3};
    shape.extent = {static_cast<std::uint32_t>(1 + maker.Below(120)),
                    static_cast<std::uint32_t>(1 + maker.Below(120)),
                    static_cast<std::uint32_t>(1 + maker.Below(5)), 1};
    if (maker.Below(2) == 0) shape.channel_axis = 2;
    std::size_t before = 0;
    for (shape.samples = 1; shape.bytes() <= limits::kChunkBytesMax;
         shape.samples += 1 + shape.samples / 3) {
      const std::size_t bytes = ChunkScratchBytes(shape);
      ASSERT_GE(bytes, before) << Describe(shape) << ", seed " << kSeed;
      before = bytes;
    }
  }
}

}  // namespace forebay::compress::stage_kernels_test
