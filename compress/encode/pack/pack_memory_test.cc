// A writer holds what its schema says, however many samples come: no more for tiles, and no less.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/testing/allocation_watch.h"
#include "compress/encode/testing/pack_test_model.h"

namespace forebay::compress {
namespace {

constexpr std::uint32_t kSide = 512, kTile = 64, kSamplesPerChunk = 5;
constexpr std::size_t kSampleBytes = std::size_t{kSide} * kSide * sizeof(float);
constexpr std::size_t kChunkBytes =
    std::size_t{kSamplesPerChunk} * kTile * kTile * sizeof(float);
constexpr std::size_t kEncodeShare = 30;  // times a chunk's bytes, of one thread

PackSchema Tiled() {
  PackSchema schema;
  schema.fields = {{.name = "field",
                    .dtype = Dtype::kF32,
                    .rank = 2,
                    .extent = {kSide, kSide, 1, 1},
                    .bound = {},
                    .samples_per_chunk = kSamplesPerChunk,
                    .tile = {kTile, kTile, 1, 1}}};
  return schema;
}

// The most memory that writing so many samples takes.
std::size_t PeakOf(unsigned threads, std::size_t samples) {
  const TestFolder folder;
  std::vector<float> values(kSampleBytes / sizeof(float));
  WatchAllocations();
  const auto writer = PackWriter::Create(folder.Path("p.fbp"), Tiled(),
                                         {.profile = Profile::kFast, .threads = threads});
  EXPECT_TRUE(writer.has_value());
  for (std::size_t sample = 0; sample < samples; ++sample) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % kSide + sample);
    }
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    EXPECT_TRUE((*writer)->Add({&bytes, 1}, "").has_value());
  }
  EXPECT_TRUE((*writer)->Finish().has_value());
  return PeakAllocation();
}

TEST(PackMemory, OfTiledFieldsIsTheSamplesOfAChunkWhole) {
  const PackSchema schema = Tiled();
  EXPECT_EQ(BufferedBytesMax(schema, 1), kSamplesPerChunk * kSampleBytes + kChunkBytes);
  EXPECT_EQ(BufferedBytesMax(schema, 3), kSamplesPerChunk * kSampleBytes + 8 * kChunkBytes);
  if (!CanWatchAllocations()) GTEST_SKIP() << "sanitizers keep their own operator new";
  for (const unsigned threads : {1U, 3U}) {
    const std::size_t limit =
        BufferedBytesMax(schema, threads) + threads * kEncodeShare * kChunkBytes;
    const std::size_t some = PeakOf(threads, 2 * kSamplesPerChunk);
    const std::size_t more = PeakOf(threads, 6 * kSamplesPerChunk);
    EXPECT_GT(some, kSamplesPerChunk * kSampleBytes) << threads << " threads";
    EXPECT_LT(some, limit) << threads << " threads";
    EXPECT_LT(more, limit) << threads << " threads";
  }
}

TEST(PackMemory, OfByteStringsAndKeysIsAChunkOfThem) {
  PackSchema schema;
  schema.fields = {{.name = "text", .fill_bits = {}, .bound = {}}};
  EXPECT_EQ(BufferedBytesMax(schema, 1), std::uint64_t{8} << 20);
  schema.keyed = true;
  EXPECT_EQ(BufferedBytesMax(schema, 1), (std::uint64_t{11} << 20) + 3 * 1024);
  // Nearly a chunk of strings, before anything is encoded.
  if (!CanWatchAllocations()) GTEST_SKIP() << "sanitizers keep their own operator new";
  constexpr std::size_t kStringBytes = 1000, kStrings = 4100, kLengths = 64 << 10;
  const TestFolder folder;
  const std::vector<std::byte> text(kStringBytes);
  const std::span<const std::byte> bytes = text;
  schema.keyed = false;
  schema.fields[0].samples_per_chunk = kStrings + 1;
  const auto writer = PackWriter::Create(folder.Path("p.fbp"), schema, {});
  ASSERT_TRUE(writer.has_value());
  WatchAllocations();
  for (std::size_t i = 0; i < kStrings; ++i) {
    ASSERT_TRUE((*writer)->Add({&bytes, 1}, "").has_value());
  }
  EXPECT_GT(PeakAllocation(), kStrings * kStringBytes);
  EXPECT_LT(PeakAllocation(), (std::size_t{4} << 20) + kLengths);
}

}  // namespace
}  // namespace forebay::compress
