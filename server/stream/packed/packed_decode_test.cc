// How much is decoded for a stream over packs, and what of it is kept.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "server/stream/testing/packed_stream_fixture.h"

namespace forebay::stream {
namespace {

using PackedDecodeTest = PackedStreamTest;

TEST_F(PackedDecodeTest, SequentialOrderDecodesEveryByteOnceWithoutKeepingAny) {
  Start(Movie(64), {.decoded_bytes = 0});
  auto session = Open({.batch = 8, .mode = OrderMode::kSequential});
  PullEpoch(*session, 0);
  EXPECT_EQ(ExpectRightBytes(), 64U);
  EXPECT_EQ(Decoded().bytes, PayloadBytes());
  EXPECT_EQ(Decoded().chunks, 8U);
  EXPECT_EQ(serve_->decoded().stats().decoded, 0U) << "decoded straight into the slot";
  session->Close();
}

// What has room for a part of the data set keeps that part; the rest goes straight to the slot.
TEST_F(PackedDecodeTest, SequentialOrderBeyondTheCacheDoesNotChurn) {
  Start(Movie(256), {.decoded_bytes = 10 * 8 * 32 * 48});
  auto session = Open({.batch = 8, .mode = OrderMode::kSequential});
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) PullEpoch(*session, epoch);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_LE(serve_->decoded().stats().evictions, 2U);
  EXPECT_GE(Decoded().kept_samples, 2U * 9 * 8);
  session->Close();
}

TEST_F(PackedDecodeTest, ABlockOrderThatFitsTheCacheDecodesEveryChunkOnce) {
  // A window is 4 runs of 8 samples of 1,536 bytes; the cache holds two.
  Start(Movie(256), {.decoded_bytes = 2 * 4 * (8 * 32 * 48 + 256)});
  auto session = Open({.batch = 8, .mode = OrderMode::kBlock, .block_samples = 8,
                       .window_runs = 4});
  PullEpoch(*session, 1);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_EQ(Decoded().bytes, PayloadBytes());
  session->Close();
}

// What a delivered batch was the last to need makes room for the next window at once.
TEST_F(PackedDecodeTest, ABlockOrderNeedsNoMoreThanOneWindow) {
  Start(Movie(256), {.workers = 1, .decoded_bytes = 5 * (8 * 32 * 48 + 256)});
  auto session = Open({.batch = 16, .mode = OrderMode::kBlock, .block_samples = 8,
                       .window_runs = 4});
  PullEpoch(*session, 1);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_EQ(Decoded().bytes, PayloadBytes());
  session->Close();
}

// What a batch takes and nobody needs before it would have to make room is decoded into the slot;
// what the window's other batches take is kept, and each chunk is still decoded once.
TEST_F(PackedDecodeTest, ABlockOrderKeepsOnlyWhatLaterBatchesTake) {
  Start(Movie(256, 64, 96), {.workers = 1, .decoded_bytes = 6 * kLargeUnitBytes});
  auto session = Open({.batch = 16, .mode = OrderMode::kBlock, .block_samples = 8,
                       .window_runs = 4});
  std::size_t parts = 0;
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    PullEpoch(*session, epoch);
    parts += KeptParts(serve_->decoded());
  }
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_GT(parts, 0U);
  EXPECT_LE(Decoded().bytes, PayloadBytes());
  session->Close();
}

TEST_F(PackedDecodeTest, WhereAllIsKeptUnitsAreWhole) {
  Start(Movie(64, 64, 96), {.decoded_bytes = 9 * kLargeUnitBytes});
  auto session = Open({.batch = 16, .mode = OrderMode::kBlock, .block_samples = 8,
                       .window_runs = 4});
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) PullEpoch(*session, epoch);
  EXPECT_EQ(ExpectRightBytes(), 64U);
  EXPECT_EQ(KeptParts(serve_->decoded()), 0U);
  EXPECT_EQ(serve_->decoded().stats().decoded, 8U);
  session->Close();
}

// Batches under way at the same time find what others left of their units, or decode it again.
TEST_F(PackedDecodeTest, BatchesAtOnceTakeTheirOwnSamplesOfAUnit) {
  Start(Movie(256, 64, 96),
        {.slot_bytes = 16 << 20, .workers = 4, .decoded_bytes = 3 * kLargeUnitBytes});
  std::vector<std::shared_ptr<StreamSession>> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(Open({.batch = 32, .credits = 16, .mode = OrderMode::kBlock,
                          .block_samples = 8, .window_runs = 8, .ranks = 2, .rank = rank}));
    ASSERT_TRUE(ranks.back());
  }
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    for (const auto& rank : ranks) {
      ASSERT_TRUE(rank->Pull({.first = {.epoch = EpochId(epoch)}, .count = 8}).has_value());
    }
    ASSERT_TRUE(sink_->WaitFor(16));
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
    EXPECT_EQ(ExpectRightBytes(), 256U);
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
      for (const auto& rank : ranks) static_cast<void>(rank->Release({&batch.id, 1}));
    }
  }
  for (const auto& rank : ranks) rank->Close();
}

TEST_F(PackedDecodeTest, AGlobalOrderBeyondTheCacheDecodesMore) {
  Start(Movie(256), {.decoded_bytes = 4 * 8 * 32 * 48});
  auto session = Open({.batch = 8});
  PullEpoch(*session, 0);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_GT(Decoded().bytes, 2 * PayloadBytes());
  EXPECT_LE(serve_->decoded().stats().used_bytes, 4U * 8 * 32 * 48);
  session->Close();
}

// Batches of two ranks at once over the same chunks: each is decoded once.
TEST_F(PackedDecodeTest, RanksShareDecodings) {
  Start(Movie(128), {.workers = 4, .decoded_bytes = 1 << 20});
  auto first = Open({.batch = 16, .credits = 8, .mode = OrderMode::kGlobal, .ranks = 2,
                     .rank = 0});
  auto second = Open({.batch = 16, .credits = 8, .mode = OrderMode::kGlobal, .ranks = 2,
                      .rank = 1});
  ASSERT_TRUE(first->Pull({.first = {}, .count = 8}).has_value());
  ASSERT_TRUE(second->Pull({.first = {}, .count = 8}).has_value());
  ASSERT_TRUE(sink_->WaitFor(16));
  EXPECT_EQ(ExpectRightBytes(), 128U);
  EXPECT_EQ(serve_->decoded().stats().decoded, 16U);
  first->Close();
  second->Close();
}

TEST_F(PackedDecodeTest, CountsWhatIsFoundDecoded) {
  Start(Movie(64), {.decoded_bytes = 1 << 20});
  auto session = Open({.batch = 16, .mode = OrderMode::kSequential});
  PullEpoch(*session, 0);
  EXPECT_EQ(Decoded().kept_units, 0U);
  PullEpoch(*session, 1);
  EXPECT_EQ(Decoded().kept_units, 8U);
  EXPECT_EQ(Decoded().kept_samples, 64U);
  EXPECT_EQ(session->stats().decode.kept_units, 8U);
  EXPECT_EQ(serve_->decoded().stats().decoded, 8U);
  session->Close();
}

}  // namespace
}  // namespace forebay::stream
