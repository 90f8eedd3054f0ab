// Streams over packs: every field of every sample, from every tier, in every order; how much is
// decoded for it; what damage does.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compress/encode/pack_test_model.h"
#include "server/catalog/pack_table.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream {
namespace {

using compress::MakeModel;
using compress::PackModel;
using ::testing::HasSubstr;

constexpr std::size_t kSamples = 61;  // ends within a chunk

std::string Text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A movie of `samples` frames in chunks of 8.
PackModel Movie(std::size_t samples, std::uint32_t rows = 32, std::uint32_t columns = 48) {
  PackModel model;
  compress::PackField field;
  field.name = "frame";
  field.kind = compress::FieldKind::kImage;
  field.dtype = Dtype::kU8;
  field.rank = 2;
  field.extent = field.tile = {rows, columns, 1, 1};
  model.schema.fields = {field};
  for (std::size_t s = 0; s < samples; ++s) {
    std::vector<std::byte> frame(std::size_t{rows} * columns);
    for (std::size_t i = 0; i < frame.size(); ++i) {
      frame[i] =
          static_cast<std::byte>((i / columns * 3 + i % columns * 2 + s + (i * s) % 5) & 0xFF);
    }
    model.samples.push_back({frame});
  }
  return model;
}

class PackedStreamTest : public ::testing::Test {
 protected:
  PackedStreamTest() { EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value()); }

  void Start(const PackModel& model, ServeOptions options = {}) {
    model_ = model;
    bytes_ = compress::WritePack(model, folder_);
    ASSERT_TRUE(backend_.AddFile("/gfs/data.pack", bytes_).has_value());
    Serve(std::move(options));
  }
  void Serve(ServeOptions options) {
    options.source = catalog::DatasetSource();
    options.source->format = catalog::Format::kPack;
    auto made = ServeFixture::Create(backend_, 0, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    const Status staged = serve_->StageAll();
    ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
    sink_ = serve_->MakeSink();
  }

  std::shared_ptr<StreamSession> Open(const ServeFixture::Ask& ask) {
    auto session = serve_->Open(ask, *sink_);
    EXPECT_TRUE(session.has_value()) << (session ? "" : session.error().ToString());
    return session ? *session : nullptr;
  }

  void PullEpoch(StreamSession& session, std::uint32_t epoch) {
    for (std::uint64_t step = 0; step < session.spec().plan.steps(); ++step) {
      const std::size_t before = sink_->batches().size();
      ASSERT_TRUE(session.Pull({.first = {.epoch = EpochId(epoch), .step = StepId(step)}})
                      .has_value());
      ASSERT_TRUE(sink_->WaitFor(before + 1));
      ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
      const std::uint64_t id = sink_->batches().back().id;
      ASSERT_TRUE(session.Release({&id, 1}).has_value());
    }
  }

  // Every field of every sample that came; returns how many different samples that were.
  std::size_t ExpectRightBytes() {
    std::set<std::uint64_t> seen;
    for (const CollectingSink::Taken& batch : sink_->batches()) {
      EXPECT_EQ(batch.fields.size(), model_.schema.fields.size());
      for (std::size_t field = 0; field < batch.fields.size(); ++field) {
        EXPECT_EQ(batch.fields[field].size(), batch.sample_ids.size());
        for (std::size_t i = 0; i < batch.fields[field].size(); ++i) {
          const std::uint64_t sample = batch.sample_ids[i];
          seen.insert(sample);
          EXPECT_EQ(batch.fields[field][i], Text(model_.samples[sample][field]))
              << "sample " << sample << ", field " << field;
        }
      }
    }
    return seen.size();
  }
  DecodeCounts Decoded() const {
    DecodeCounts sum;
    for (const CollectingSink::Taken& batch : sink_->batches()) sum.Add(batch.decode);
    return sum;
  }
  std::uint64_t PayloadBytes() const {
    std::uint64_t bytes = 0;
    for (const CollectingSink::Taken& batch : sink_->batches()) bytes += batch.payload_bytes;
    return bytes;
  }

  compress::TestFolder folder_;
  io::MemoryBackend backend_;
  PackModel model_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<CollectingSink> sink_;
  std::unique_ptr<ServeFixture> serve_;
};

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

TEST_F(PackedStreamTest, SequentialOrderDecodesEveryByteOnceWithoutKeepingAny) {
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
TEST_F(PackedStreamTest, SequentialOrderBeyondTheCacheDoesNotChurn) {
  Start(Movie(256), {.decoded_bytes = 10 * 8 * 32 * 48});
  auto session = Open({.batch = 8, .mode = OrderMode::kSequential});
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) PullEpoch(*session, epoch);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_LE(serve_->decoded().stats().evictions, 2U);
  EXPECT_GE(Decoded().kept_samples, 2U * 9 * 8);
  session->Close();
}

TEST_F(PackedStreamTest, ABlockOrderThatFitsTheCacheDecodesEveryChunkOnce) {
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
TEST_F(PackedStreamTest, ABlockOrderNeedsNoMoreThanOneWindow) {
  Start(Movie(256), {.workers = 1, .decoded_bytes = 5 * (8 * 32 * 48 + 256)});
  auto session = Open({.batch = 16, .mode = OrderMode::kBlock, .block_samples = 8,
                       .window_runs = 4});
  PullEpoch(*session, 1);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_EQ(Decoded().bytes, PayloadBytes());
  session->Close();
}

constexpr std::uint64_t kLargeUnitBytes = 8 * 64 * 96 + 256;  // worth leaving samples out

// Kept units that hold a part of their samples; all that are kept must be sound.
std::size_t KeptParts(fetch::DecodedCache& decoded) {
  std::size_t parts = 0;
  const std::uint64_t units = decoded.stats().units;
  for (std::uint64_t i = 0; i < units; ++i) {
    const auto next = decoded.ScrubNext();
    EXPECT_TRUE(next.has_value() && next->is_sound);
    if (!next.has_value()) break;
    const fetch::UnitRef unit = decoded.Find(next->key);
    parts += unit && unit->left_out > 0 ? 1 : 0;
  }
  return parts;
}

// What a batch takes and nobody needs before it would have to make room is decoded into the slot;
// what the window's other batches take is kept, and each chunk is still decoded once.
TEST_F(PackedStreamTest, ABlockOrderKeepsOnlyWhatLaterBatchesTake) {
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

TEST_F(PackedStreamTest, WhereAllIsKeptUnitsAreWhole) {
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
TEST_F(PackedStreamTest, BatchesAtOnceTakeTheirOwnSamplesOfAUnit) {
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

// What a batch on its way wants of a chunk that another one decodes goes straight to its slot:
// nothing is kept for it, nothing is decoded twice.
TEST_F(PackedStreamTest, BatchesOnTheirWayGetTheirSamplesInPlace) {
  Start(Movie(256, 64, 96), {.workers = 1, .decoded_bytes = 0});
  auto session = Open({.batch = 16, .credits = 16, .mode = OrderMode::kBlock,
                       .block_samples = 8, .window_runs = 4});
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    ASSERT_TRUE(session->Pull({.first = {.epoch = EpochId(epoch)}, .count = 16}).has_value());
    ASSERT_TRUE(sink_->WaitFor(16));
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
    EXPECT_EQ(ExpectRightBytes(), 256U);
    EXPECT_EQ(Decoded().bytes, PayloadBytes());
    EXPECT_EQ(Decoded().kept_samples, 256U / 2) << "a window is two batches";
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
      ASSERT_TRUE(session->Release({&batch.id, 1}).has_value());
    }
    EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  }
  EXPECT_EQ(serve_->decoded().stats().used_bytes, 0U);
  session->Close();
}

// Batches that write each other's rows at the same time, in every order, while chunks are damaged
// in RAM and brought anew.
TEST_F(PackedStreamTest, ManyThreadsFillEachOthersSlots) {
  Start(Movie(256, 64, 96), {.workers = 4, .decoded_bytes = 3 * kLargeUnitBytes});
  for (const OrderMode mode : {OrderMode::kBlock, OrderMode::kGlobal, OrderMode::kSequential}) {
    auto session = Open({.batch = 12, .credits = 22, .mode = mode, .block_samples = 8,
                         .window_runs = 4, .tail = TailPolicy::kPad});
    ASSERT_TRUE(session);
    for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
      for (std::uint64_t number = epoch; number < 32; number += 5) {
        const catalog::PackChunk chunk = serve_->dataset().catalog()->packs()->chunk(number);
        const tier::ExtentRef extent = serve_->cache().FindOn(
            serve_->dataset().key(chunk.extent), tier::TierKind::kRam);
        if (!extent) continue;
        extent->block.bytes()[chunk.image_offset + chunk.entry.head_bytes + 40] ^= std::byte{4};
      }
      ASSERT_TRUE(session->Pull({.first = {.epoch = EpochId(epoch)}, .count = 22}).has_value());
      ASSERT_TRUE(sink_->WaitFor(22));
      ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
      EXPECT_EQ(ExpectRightBytes(), 256U);
      for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
        ASSERT_TRUE(session->Release({&batch.id, 1}).has_value());
      }
    }
    session->Close();
  }
  EXPECT_GT(serve_->cache().stats(tier::TierKind::kRam).bad_extents, 0U);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U) << "slot memory leaked";
}

// One name pulled several times at once: each gets all bytes, none in another's memory.
TEST_F(PackedStreamTest, ABatchMayBeOnItsWaySeveralTimes) {
  Start(Movie(64, 64, 96), {.workers = 4, .decoded_bytes = 3 * kLargeUnitBytes});
  auto session = Open({.batch = 16, .credits = 12, .mode = OrderMode::kBlock,
                       .block_samples = 8, .window_runs = 4});
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    for (int time = 0; time < 3; ++time) {
      ASSERT_TRUE(session->Pull({.first = {.epoch = EpochId(epoch)}, .count = 4}).has_value());
    }
    ASSERT_TRUE(sink_->WaitFor(12));
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
    EXPECT_EQ(ExpectRightBytes(), 64U);
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
      ASSERT_TRUE(session->Release({&batch.id, 1}).has_value());
    }
  }
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  session->Close();
}

// A micro-batch larger than what the stream reserved for each batch has no slot that others fill:
// it takes memory only when it is its turn.
TEST_F(PackedStreamTest, AMicroBatchBeyondTheReservationIsNotFilledByOthers) {
  Start(Movie(64, 64, 96), {.workers = 1, .decoded_bytes = 0});
  auto session = Open({.batch = 64, .credits = 2, .mode = OrderMode::kBlock,
                       .block_samples = 8, .window_runs = 4, .ranks = 4, .rank = 0});
  ASSERT_TRUE(session->Pull({.first = {}, .count = 1}).has_value());
  ASSERT_TRUE(session->Pull({.first = {.micro_size = 64}, .count = 1}).has_value());
  ASSERT_TRUE(sink_->WaitFor(2));
  ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
  EXPECT_EQ(ExpectRightBytes(), 64U);
  EXPECT_EQ(Decoded().kept_samples, 0U);
  session->Close();
}

// A batch that fails gives back the slot that another one had begun to fill.
TEST_F(PackedStreamTest, ABatchThatFailsLeavesNoSlot) {
  const PackModel model = Movie(64, 64, 96);
  std::vector<std::byte> bytes = compress::WritePack(model, folder_);
  const auto source = compress::MemorySource(bytes);
  const auto pack = compress::PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  const compress::ChunkEntry& entry = pack->index().chunks[1];
  bytes[entry.offset + entry.head_bytes + 9] ^= std::byte{1};
  ASSERT_TRUE(backend_.AddFile("/gfs/data.pack", bytes).has_value());
  model_ = model;
  Serve({.workers = 1, .decoded_bytes = 0});
  // Batch 0: chunk 0 and the first half of chunk 1; batch 1: its other half, and chunk 2.
  auto session = Open({.batch = 12, .credits = 5, .mode = OrderMode::kSequential});
  ASSERT_TRUE(session->Pull({.first = {}, .count = 5}).has_value());
  ASSERT_TRUE(sink_->WaitFor(5));
  EXPECT_EQ(sink_->errors().size(), 2U) << "the two batches that want the chunk";
  EXPECT_EQ(ExpectRightBytes(), 36U);
  for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
    ASSERT_TRUE(session->Release({&batch.id, 1}).has_value());
  }
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  session->Close();
}

// A batch of padding has samples twice: one of them is decoded to its row, the other copied.
TEST_F(PackedStreamTest, ASampleMayStandInSeveralRows) {
  for (const std::uint64_t decoded_bytes :
       {std::uint64_t{0}, kLargeUnitBytes, 4 * kLargeUnitBytes}) {
    for (const OrderMode mode : {OrderMode::kSequential, OrderMode::kBlock}) {
      Start(Movie(13, 64, 96), {.decoded_bytes = decoded_bytes});
      auto session = Open({.batch = 32, .mode = mode, .block_samples = 8, .window_runs = 4,
                           .tail = TailPolicy::kPad});
      for (std::uint32_t epoch = 0; epoch < 2; ++epoch) PullEpoch(*session, epoch);
      EXPECT_EQ(ExpectRightBytes(), 13U);
      ASSERT_EQ(sink_->batches().front().sample_ids.size(), 32U);
      session->Close();
    }
  }
}

// Chunks damaged in RAM are brought anew while parts of units are kept.
TEST_F(PackedStreamTest, DamagedChunksBesidePartsAreReplaced) {
  Start(Movie(256, 64, 96), {.workers = 1, .decoded_bytes = 6 * kLargeUnitBytes});
  auto session = Open({.batch = 16, .mode = OrderMode::kBlock, .block_samples = 8,
                       .window_runs = 4});
  PullEpoch(*session, 0);
  for (std::uint64_t number = 0; number < 32; number += 3) {
    const catalog::PackChunk chunk = serve_->dataset().catalog()->packs()->chunk(number);
    const tier::ExtentRef extent = serve_->cache().FindOn(serve_->dataset().key(chunk.extent),
                                                          tier::TierKind::kRam);
    ASSERT_TRUE(extent);
    extent->block.bytes()[chunk.image_offset + chunk.entry.head_bytes + 40] ^= std::byte{4};
  }
  PullEpoch(*session, 1);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_GT(serve_->cache().stats(tier::TierKind::kRam).bad_extents, 0U);
  EXPECT_GT(KeptParts(serve_->decoded()), 0U);
  session->Close();
}

TEST_F(PackedStreamTest, AGlobalOrderBeyondTheCacheDecodesMore) {
  Start(Movie(256), {.decoded_bytes = 4 * 8 * 32 * 48});
  auto session = Open({.batch = 8});
  PullEpoch(*session, 0);
  EXPECT_EQ(ExpectRightBytes(), 256U);
  EXPECT_GT(Decoded().bytes, 2 * PayloadBytes());
  EXPECT_LE(serve_->decoded().stats().used_bytes, 4U * 8 * 32 * 48);
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

// A chunk that is damaged in RAM is dropped and brought anew; the reader sees nothing of it.
TEST_F(PackedStreamTest, ADamagedCopyInRamIsReplaced) {
  Start(Movie(64), {.decoded_bytes = 0});
  const catalog::PackChunk chunk = serve_->dataset().catalog()->packs()->chunk(3);
  {
    const tier::ExtentRef extent = serve_->cache().FindOn(serve_->dataset().key(chunk.extent),
                                                          tier::TierKind::kRam);
    ASSERT_TRUE(extent);
    extent->block.bytes()[chunk.image_offset + chunk.entry.head_bytes + 5] ^= std::byte{4};
  }
  auto session = Open({.batch = 8, .mode = OrderMode::kSequential});
  PullEpoch(*session, 0);
  EXPECT_EQ(ExpectRightBytes(), 64U);
  EXPECT_EQ(serve_->cache().stats(tier::TierKind::kRam).bad_extents, 1U);
  session->Close();
}

// A chunk that is damaged on the GFS costs its own samples; the error names them, no tier is
// blamed for it, and the GFS is not asked again.
TEST_F(PackedStreamTest, DamageOnTheGfsIsConfinedToItsSamples) {
  const PackModel model = Movie(64);
  std::vector<std::byte> bytes = compress::WritePack(model, folder_);
  {
    const auto source = compress::MemorySource(bytes);
    const auto pack = compress::PackFile::Open(*source);
    ASSERT_TRUE(pack.has_value());
    const compress::ChunkEntry& entry = pack->index().chunks[2];
    bytes[entry.offset + entry.head_bytes + 9] ^= std::byte{1};
  }
  ASSERT_TRUE(backend_.AddFile("/gfs/data.pack", bytes).has_value());
  model_ = model;
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

// Batches of two ranks at once over the same chunks: each is decoded once.
TEST_F(PackedStreamTest, RanksShareDecodings) {
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

// What is kept is checked by the checksums of its samples, variable and tiled fields included.
TEST_F(PackedStreamTest, ScrubbingFindsWhatWasDamagedAfterDecoding) {
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

TEST_F(PackedStreamTest, CountsWhatIsFoundDecoded) {
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

}  // namespace
}  // namespace forebay::stream
