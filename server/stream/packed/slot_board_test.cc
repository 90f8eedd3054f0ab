// Rows of a slot are written once each, by one at a time; a stream's batches find each other's.
#include "server/stream/packed/slot_board.h"

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

namespace forebay::stream::slot_board_test {

constexpr std::size_t kRows = 3;
constexpr std::uint64_t kRowBytes = BatchSlot::kSharedRowBytesMin;

class BatchSlotTest : public ::testing::Test {
 protected:
  BatchSlotTest()
      : arena_(*tier::RamArena::Create({.capacity_bytes = 1 << 20, .region_bytes = 1 << 20})),
        slot_(std::make_shared<BatchSlot>(
            SlotLayout{.begins = {0, kRows * kRowBytes},
                       .row_bytes = {kRowBytes, 8},
                       .total_bytes = kRows * (kRowBytes + 8)},
            kRows)) {}

  std::unique_ptr<tier::RamArena> arena_;
  std::shared_ptr<BatchSlot> slot_;
};

TEST_F(BatchSlotTest, ARowIsClaimedOnceAndFilledForGood) {
  EXPECT_TRUE(slot_->IsShared(0));
  EXPECT_FALSE(slot_->IsShared(1)) << "8 bytes are sooner copied";
  const std::span<std::byte> row = slot_->TryClaim(0, 1, *arena_);
  ASSERT_EQ(row.size(), kRowBytes);
  EXPECT_EQ(row.data(), slot_->Row(0, 1).data());
  EXPECT_TRUE(slot_->TryClaim(0, 1, *arena_).empty()) << "another one writes it";
  EXPECT_FALSE(slot_->IsFilled(0, 1));
  slot_->EndClaim(0, 1, true);
  EXPECT_TRUE(slot_->IsFilled(0, 1));
  EXPECT_TRUE(slot_->TryClaim(0, 1, *arena_).empty());
  EXPECT_FALSE(slot_->Claim(0, 1)) << "there is nothing left to do";
  EXPECT_TRUE(slot_->Claim(0, 0));
  slot_->EndClaim(0, 0, false);
  EXPECT_FALSE(slot_->TryClaim(0, 0, *arena_).empty()) << "a failed one may be tried again";
  slot_->EndClaim(0, 0, false);
}

TEST_F(BatchSlotTest, TheBatchWaitsForWhoWritesItsRow) {
  const std::span<std::byte> row = slot_->TryClaim(0, 2, *arena_);
  ASSERT_FALSE(row.empty());
  std::thread other([&] {
    std::memset(row.data(), 7, row.size());
    slot_->EndClaim(0, 2, true);
  });
  EXPECT_FALSE(slot_->Claim(0, 2));
  EXPECT_EQ(slot_->Row(0, 2)[5], std::byte{7});
  other.join();
}

TEST_F(BatchSlotTest, AtItsEndItWaitsForOthersAndGivesItsMemory) {
  ASSERT_FALSE(slot_->TryClaim(0, 0, *arena_).empty());
  bool has_ended = false;
  std::thread other([&] {
    has_ended = true;
    slot_->EndClaim(0, 0, true);
  });
  {
    const tier::ArenaBlock block = slot_->Take();
    EXPECT_TRUE(has_ended);
    EXPECT_TRUE(block.valid());
  }
  other.join();
  EXPECT_EQ(arena_->used_bytes(), 0U);
  EXPECT_TRUE(slot_->TryClaim(0, 1, *arena_).empty()) << "the batch is over";
  EXPECT_EQ(arena_->used_bytes(), 0U);
  ASSERT_TRUE(slot_->Allocate(*arena_).has_value());
  EXPECT_FALSE(slot_->IsFilled(0, 0)) << "other memory, with nothing in it";
  EXPECT_FALSE(slot_->TryClaim(0, 1, *arena_).empty());
  slot_->EndClaim(0, 1, false);
}

TEST_F(BatchSlotTest, AbandonedItKeepsOnlyWhatAnAttemptUses) {
  ASSERT_FALSE(slot_->TryClaim(0, 0, *arena_).empty());
  slot_->EndClaim(0, 0, true);
  ASSERT_TRUE(slot_->Allocate(*arena_).has_value());
  slot_->Abandon();
  EXPECT_GT(arena_->used_bytes(), 0U) << "an attempt writes there";
  slot_->Disown();
  slot_->Abandon();
  EXPECT_EQ(arena_->used_bytes(), 0U);
  EXPECT_FALSE(slot_->IsFilled(0, 0));
  EXPECT_TRUE(slot_->TryClaim(0, 1, *arena_).empty());
}

TEST_F(BatchSlotTest, WithoutMemoryNothingIsClaimed) {
  const auto all = arena_->Allocate(1 << 20);
  ASSERT_TRUE(all.has_value());
  EXPECT_TRUE(slot_->TryClaim(0, 0, *arena_).empty());
  EXPECT_EQ(slot_->Allocate(*arena_).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_FALSE(slot_->Take().valid());
}

TEST_F(BatchSlotTest, AClaimThatIsNotFilledIsGivenBack) {
  ASSERT_FALSE(slot_->TryClaim(0, 0, *arena_).empty());
  ASSERT_FALSE(slot_->TryClaim(0, 1, *arena_).empty());
  {
    RowClaim failed(slot_, 0, 0);
    RowClaim done(slot_, 0, 1);
    RowClaim moved(std::move(done));
    moved.Fill();
  }
  EXPECT_FALSE(slot_->IsFilled(0, 0));
  EXPECT_TRUE(slot_->IsFilled(0, 1));
  EXPECT_TRUE(slot_->Claim(0, 0));
  slot_->EndClaim(0, 0, true);
}

}  // namespace forebay::stream::slot_board_test
