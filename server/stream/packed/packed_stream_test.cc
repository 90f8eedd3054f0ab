// Streams over packs: every field of every sample, from every tier, in every order; batches that
// wait for slots.
#include <gtest/gtest.h>

#include "server/stream/testing/packed_stream_fixture.h"

namespace forebay::stream::packed_stream_test {

constexpr std::size_t kSamples = 61;  // ends within a chunk

TEST_F(PackedStreamTest, EveryFieldInEveryOrderAndDelivery) {
  Start(MakeModel(kSamples, 5));
  ASSERT_GE(model_.schema.fields.size(), 5U);
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    for (const OrderMode mode :
         {OrderMode::kSequential, OrderMode::kBlock, OrderMode::kGlobal}) {
      sink_ = serve_->MakeSink();
      auto session = Open({.batch = 7, .delivery = delivery, .mode = mode,
                           .tail = TailPolicy::kShort});
      ASSERT_TRUE(session);
      PullEpoch(*session, 2);
      EXPECT_EQ(ExpectRightBytes(), kSamples);
      session->Close();
    }
  }
  EXPECT_EQ(serve_->slots().used_bytes(), 0U) << "slot memory leaked";
}

TEST_F(PackedStreamTest, FromSsd) {
  Start(MakeModel(kSamples, 6),
        {.ram_bytes = 128 << 10, .ssd_bytes = 64 << 20, .extent_bytes = 32 << 10,
         .decoded_bytes = 8 << 10});
  ASSERT_GT(serve_->cache().stats(tier::TierKind::kSsd).extents, 0U) << "nothing went to SSD";
  auto session = Open({.batch = 9, .tail = TailPolicy::kShort});
  ASSERT_TRUE(session);
  PullEpoch(*session, 0);
  EXPECT_EQ(ExpectRightBytes(), kSamples);
  EXPECT_GT(session->stats().ssd_bytes, 0U);
  session->Close();
}

TEST_F(PackedStreamTest, WhatIsDecodedNeedsNoExtent) {
  Start(Movie(64), {.decoded_bytes = 1 << 20});
  auto session = Open({.batch = 8});
  PullEpoch(*session, 0);
  for (const tier::ExtentKey& key : serve_->cache().Resident(tier::TierKind::kRam)) {
    ASSERT_TRUE(serve_->cache().Evict(key, std::nullopt).has_value());
  }
  const std::uint64_t read = serve_->dataset().progress().gfs_bytes;
  PullEpoch(*session, 1);
  EXPECT_EQ(ExpectRightBytes(), 64U);
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, read) << "the GFS was read again";
  session->Close();
}

TEST_F(PackedStreamTest, WhatWasEvictedIsBroughtAgain) {
  Start(MakeModel(kSamples, 9), {.decoded_bytes = 0});
  auto session = Open({.batch = 7, .tail = TailPolicy::kShort});
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    for (const tier::ExtentKey& key : serve_->cache().Resident(tier::TierKind::kRam)) {
      ASSERT_TRUE(serve_->cache().Evict(key, std::nullopt).has_value());
    }
    PullEpoch(*session, epoch);
  }
  EXPECT_EQ(ExpectRightBytes(), kSamples);
  session->Close();
}

TEST_F(PackedStreamTest, ABatchThatFindsNoSlotsWaitsForThem) {
  // Slots for two batches of 8 x 1,536 bytes, promised to four credits of one page each.
  Start(Movie(64), {.slot_bytes = 4 * 16384});
  auto session = Open({.batch = 8, .credits = 4});
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->Pull({.first = {}, .count = 4}).has_value());
  ASSERT_TRUE(sink_->WaitFor(4));
  EXPECT_TRUE(sink_->errors().empty());
  EXPECT_FALSE(serve_->Open({.batch = 8, .credits = 4, .name = "other"}, *sink_).has_value())
      << "slots were promised twice";
  session->Close();
}

// A batch of unknown size finds no slot after it was decoded: it waits, and is not decoded again.
TEST_F(PackedStreamTest, WhatABatchThatWaitsForSlotsWasDecodedToIsKept) {
  PackModel model = MakeModel(32, 5);
  ASSERT_TRUE(model.schema.fields.back().variable());
  for (auto& sample : model.samples) sample.back().resize(64 << 10, std::byte{5});
  DecodeCounts unhindered;
  for (const std::uint64_t slot_bytes : {64U << 20, 800U << 10}) {
    const bool is_short = slot_bytes < (1 << 20);
    Start(model, {.slot_bytes = slot_bytes, .workers = 1, .decoded_bytes = 0});
    auto session = Open({.batch = 8, .credits = 4, .mode = OrderMode::kSequential});
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->Pull({.first = {}, .count = 2}).has_value());
    // One worker does one thing after the other: behind both, what fails for its name.
    ASSERT_TRUE(session->Pull({.first = {.step = StepId(1000)}}).has_value());
    ASSERT_TRUE(sink_->WaitFor(is_short ? 2 : 3));
    ASSERT_EQ(sink_->batches().size(), is_short ? 1U : 2U);
    ASSERT_EQ(sink_->errors().size(), 1U);
    const std::uint64_t decoded = serve_->decoded().stats().decoded;
    EXPECT_GT(decoded, 0U);
    const std::uint64_t id = sink_->batches().front().id;
    ASSERT_TRUE(session->Release({&id, 1}).has_value());
    ASSERT_TRUE(sink_->WaitFor(3));
    ASSERT_EQ(sink_->batches().size(), 2U);
    EXPECT_EQ(ExpectRightBytes(), 16U);
    EXPECT_EQ(serve_->decoded().stats().decoded, decoded) << "it was decoded again";
    const SessionStats stats = session->stats();
    EXPECT_EQ(stats.ram_samples, 16 * model.schema.fields.size());
    if (!is_short) unhindered = stats.decode;
    EXPECT_EQ(stats.decode.chunks, unhindered.chunks);
    EXPECT_EQ(stats.decode.bytes, unhindered.bytes);
    session->Close();
  }
}

}  // namespace forebay::stream::packed_stream_test
