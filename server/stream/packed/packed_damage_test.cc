// Streams over packs that are damaged: on the GFS, in RAM, after decoding.
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/stream/testing/packed_stream_fixture.h"

namespace forebay::stream::packed_damage_test {

using ::testing::HasSubstr;
using PackedDamageTest = PackedStreamTest;

constexpr std::size_t kSamples = 61;  // ends within a chunk

// A chunk that is damaged on the GFS costs its own samples; the error names them, no tier is
// blamed for it, and the GFS is not asked again.
TEST_F(PackedDamageTest, DamageOnTheGfsIsConfinedToItsSamples) {
  AddDamagedPack(Movie(64), 2);
  for (const std::uint64_t ram_bytes : {8U << 20, 28U << 10}) {
    Serve({.ram_bytes = ram_bytes, .ssd_bytes = 64 << 20, .extent_bytes = 8 << 10});
    const auto ssd = [&] { return serve_->cache().stats(tier::TierKind::kSsd); };
    EXPECT_EQ(ssd().extents > 0, ram_bytes < (1 << 20));
    const std::uint64_t read = serve_->dataset().progress().gfs_bytes;
    auto session = Open({.batch = 8, .mode = OrderMode::kSequential});
    for (std::uint64_t step = 0; step < 8; ++step) {
      ASSERT_TRUE(session->Pull({.first = {.step = StepId(step)}}).has_value());
      ASSERT_TRUE(sink_->WaitFor(step + 1));
      if (step == 2) continue;
      const CollectingSink::Taken batch = sink_->batches().back();
      EXPECT_EQ(batch.name.step.value(), step);
      ASSERT_TRUE(session->Release({&batch.id, 1}).has_value());
    }
    EXPECT_EQ(ExpectRightBytes(), 56U);
    ASSERT_EQ(sink_->errors().size(), 1U);
    EXPECT_EQ(sink_->errors()[0].code(), ErrorCode::kDataLoss);
    EXPECT_THAT(sink_->errors()[0].message(), HasSubstr("field frame, samples 16 to 23"));
    EXPECT_EQ(ssd().bad_extents, 0U);
    EXPECT_FALSE(ssd().retired);
    EXPECT_EQ(serve_->dataset().progress().gfs_bytes, read);
    session->Close();
  }
}

// A chunk that is damaged in RAM is dropped and brought anew; the reader sees nothing of it.
TEST_F(PackedDamageTest, ADamagedCopyInRamIsReplaced) {
  Start(Movie(64), {.decoded_bytes = 0});
  ASSERT_TRUE(DamageInRam(3));
  auto session = Open({.batch = 8, .mode = OrderMode::kSequential});
  PullEpoch(*session, 0);
  EXPECT_EQ(ExpectRightBytes(), 64U);
  EXPECT_EQ(serve_->cache().stats(tier::TierKind::kRam).bad_extents, 1U);
  session->Close();
}

// Chunks damaged in RAM are brought anew while parts of units are kept.
TEST_F(PackedDamageTest, DamagedChunksBesidePartsAreReplaced) {
  Start(Movie(256, 64, 96), {.workers = 1, .decoded_bytes = 6 * kLargeUnitBytes});
  auto session = Open({.batch = 16, .mode = OrderMode::kBlock, .block_samples = 8,
                       .window_runs = 4});
  PullEpoch(*session, 0);
  for (std::uint64_t number = 0; number < 32; number += 3) ASSERT_TRUE(DamageInRam(number));
  PullEpoch(*session, 1);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_GT(serve_->cache().stats(tier::TierKind::kRam).bad_extents, 0U);
  EXPECT_GT(KeptParts(serve_->decoded()), 0U);
  session->Close();
}

// What is kept is checked by the checksums of its samples, variable and tiled fields included.
TEST_F(PackedDamageTest, ScrubbingFindsWhatWasDamagedAfterDecoding) {
  PackModel model = MakeModel(kSamples, 5);
  for (std::size_t i = 0; i < 20; ++i) model.samples[i].back().resize(3000, std::byte{5});
  Start(model, {.decoded_bytes = 16 << 20});
  auto session = Open({.batch = 7, .tail = TailPolicy::kShort});
  ASSERT_TRUE(session);
  PullEpoch(*session, 0);
  const std::uint64_t units = serve_->decoded().stats().units;
  ASSERT_GT(units, model.schema.fields.size());
  for (std::uint64_t i = 0; i < units; ++i) {
    const auto scrubbed = serve_->decoded().ScrubNext();
    ASSERT_TRUE(scrubbed.has_value());
    EXPECT_TRUE(scrubbed->is_sound) << "piece " << scrubbed->key.piece;
  }
  // A bit of each in turn.
  std::uint64_t damaged = 0;
  for (std::uint64_t i = 0; i < units; ++i) {
    const auto next = serve_->decoded().ScrubNext();
    const fetch::UnitRef unit = serve_->decoded().Find(next->key);
    ASSERT_TRUE(unit);
    if (unit->bytes.size() == 0) continue;
    const std::span<const std::byte> bytes = unit->bytes.span();
    const_cast<std::byte&>(bytes[i * 997 % bytes.size()]) ^= std::byte{8};
    ++damaged;
  }
  for (std::uint64_t i = 0; i < units; ++i) serve_->decoded().ScrubNext();
  for (std::uint64_t i = 0; i < units; ++i) serve_->decoded().ScrubNext();
  EXPECT_EQ(serve_->decoded().stats().bad_units, damaged);
  sink_->TakeBatches();
  PullEpoch(*session, 1);
  EXPECT_EQ(ExpectRightBytes(), kSamples) << "what was damaged is decoded again";
  session->Close();
}

}  // namespace forebay::stream::packed_damage_test
