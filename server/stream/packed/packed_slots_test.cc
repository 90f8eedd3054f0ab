// Batches of a stream over packs that fill rows of each other's slots.
#include <gtest/gtest.h>

#include "server/stream/packed/packed_gatherer.h"
#include "server/stream/packed/slot_board.h"
#include "server/stream/testing/packed_stream_fixture.h"

namespace forebay::stream {
namespace {

using PackedSlotsTest = PackedStreamTest;

// What a batch on its way wants of a chunk that another one decodes goes straight to its slot:
// nothing is kept for it, nothing is decoded twice.
TEST_F(PackedSlotsTest, BatchesOnTheirWayGetTheirSamplesInPlace) {
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
    ReleaseAll(*session);
    EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  }
  EXPECT_EQ(serve_->decoded().stats().used_bytes, 0U);
  session->Close();
}

// Batches that write each other's rows at the same time, in every order, while chunks are damaged
// in RAM and brought anew.
TEST_F(PackedSlotsTest, ManyThreadsFillEachOthersSlots) {
  Start(Movie(256, 64, 96), {.workers = 4, .decoded_bytes = 3 * kLargeUnitBytes});
  for (const OrderMode mode : {OrderMode::kBlock, OrderMode::kGlobal, OrderMode::kSequential}) {
    auto session = Open({.batch = 12, .credits = 22, .mode = mode, .block_samples = 8,
                         .window_runs = 4, .tail = TailPolicy::kPad});
    ASSERT_TRUE(session);
    for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
      for (std::uint64_t number = epoch; number < 32; number += 5) {
        DamageInRam(number);
      }
      ASSERT_TRUE(session->Pull({.first = {.epoch = EpochId(epoch)}, .count = 22}).has_value());
      ASSERT_TRUE(sink_->WaitFor(22));
      ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
      EXPECT_EQ(ExpectRightBytes(), 256U);
      ReleaseAll(*session);
    }
    session->Close();
  }
  EXPECT_GT(serve_->cache().stats(tier::TierKind::kRam).bad_extents, 0U);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U) << "slot memory leaked";
}

// One name pulled several times at once: each gets all bytes, none in another's memory.
TEST_F(PackedSlotsTest, ABatchMayBeOnItsWaySeveralTimes) {
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
    ReleaseAll(*session);
  }
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  session->Close();
}

// A micro-batch larger than what the stream reserved for each batch has no slot that others fill:
// it takes memory only when it is its turn.
TEST_F(PackedSlotsTest, AMicroBatchBeyondTheReservationIsNotFilledByOthers) {
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

// Two attempts of one batch, on two threads: the one that was parked before it took the slot comes
// to its end while the next one has the slot. If the stream closes then, the memory must stay.
TEST_F(PackedSlotsTest, AnAttemptThatHasNotTakenTheSlotLeavesItToTheNext) {
  Start(Movie(64, 64, 96), {.workers = 1, .decoded_bytes = 0});
  auto session = Open({.batch = 16, .credits = 4});
  const StreamSpec& spec = session->spec();
  const BatchName name = {};
  const Order order(spec.order, name.epoch);
  SlotBoard board(std::make_shared<const StreamSpec>(spec));
  const std::shared_ptr<BatchSlot> slot = board.Open(name, limits::kGiB);
  ASSERT_NE(slot, nullptr);
  PackedGatherer parked(serve_->decoded());
  const auto plan = PlanBatch(spec, order, name);
  ASSERT_TRUE(plan.has_value());
  ASSERT_TRUE(parked.Plan(spec, *plan,
                          {.open = {.own = slot, .board = &board, .order = &order}})
                  .has_value());
  ASSERT_TRUE(slot->Allocate(serve_->slots()).has_value());  // by the next attempt
  parked.Forget();
  board.Abandon();
  EXPECT_GT(serve_->slots().used_bytes(), 0U) << "freed under the attempt that fills it";
  slot->Disown();
  board.Abandon();
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  session->Close();
}

// A batch that fails gives back the slot that another one had begun to fill.
TEST_F(PackedSlotsTest, ABatchThatFailsLeavesNoSlot) {
  AddDamagedPack(Movie(64, 64, 96), 1);
  Serve({.workers = 1, .decoded_bytes = 0});
  // Batch 0: chunk 0 and the first half of chunk 1; batch 1: its other half, and chunk 2.
  auto session = Open({.batch = 12, .credits = 5, .mode = OrderMode::kSequential});
  ASSERT_TRUE(session->Pull({.first = {}, .count = 5}).has_value());
  ASSERT_TRUE(sink_->WaitFor(5));
  EXPECT_EQ(sink_->errors().size(), 2U) << "the two batches that want the chunk";
  EXPECT_EQ(ExpectRightBytes(), 36U);
  ReleaseAll(*session);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  session->Close();
}

// A batch of padding has samples twice: one of them is decoded to its row, the other copied.
TEST_F(PackedSlotsTest, ASampleMayStandInSeveralRows) {
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

}  // namespace
}  // namespace forebay::stream
