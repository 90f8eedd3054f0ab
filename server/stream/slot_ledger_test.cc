// What was promised to one stream is there, whatever others take.
#include "server/stream/slot_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::stream {
namespace {

using Excess = SlotLedger::Excess;

TEST(SlotLedgerTest, ReservesBatchesForEveryCreditAndScratchOnce) {
  SlotLedger ledger(1000);
  EXPECT_TRUE(ledger.Reserve({.held_bytes = 100, .scratch_bytes = 200}, 4).has_value());
  EXPECT_TRUE(ledger.Reserve({.held_bytes = 100, .scratch_bytes = 150}, 4).has_value())
      << "streams share scratch";
  const Status refused = ledger.Reserve({.held_bytes = 1, .scratch_bytes = 0}, 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("slots.capacity"));
  ledger.GiveBack({.held_bytes = 100, .scratch_bytes = 200}, 4);
  EXPECT_TRUE(ledger.Reserve({.held_bytes = 450, .scratch_bytes = 0}, 1).has_value())
      << "the largest scratch went with its stream";
}

TEST(SlotLedgerTest, ScratchThatDoesNotFitRefusesTheStream) {
  SlotLedger ledger(1000);
  EXPECT_FALSE(ledger.Reserve({.held_bytes = 100, .scratch_bytes = 601}, 4).has_value());
  EXPECT_FALSE(ledger.Reserve({.held_bytes = 100, .scratch_bytes = 2000}, 4).has_value());
  EXPECT_TRUE(ledger.Reserve({.held_bytes = 100, .scratch_bytes = 600}, 4).has_value());
}

TEST(SlotLedgerTest, OneCanAlwaysBePutTogetherAndMoreWhereThereIsRoom) {
  SlotLedger ledger(1000);
  ASSERT_TRUE(ledger.Reserve({.held_bytes = 100, .scratch_bytes = 250}, 4).has_value());
  EXPECT_TRUE(ledger.TakeScratch(250, false));
  EXPECT_TRUE(ledger.TakeScratch(250, false));
  EXPECT_FALSE(ledger.TakeScratch(250, false)) << "that would be what readers were promised";
  ledger.EndScratch(250, false);
  EXPECT_TRUE(ledger.TakeScratch(250, false));
}

TEST(SlotLedgerTest, AloneMeansAlone) {
  SlotLedger ledger(1000);
  EXPECT_TRUE(ledger.TakeScratch(10, false));
  EXPECT_FALSE(ledger.TakeScratch(0, true));
  ledger.EndScratch(10, false);
  EXPECT_TRUE(ledger.TakeScratch(0, true));
  EXPECT_FALSE(ledger.TakeScratch(10, false));
  EXPECT_FALSE(ledger.TakeScratch(0, true));
  ledger.EndScratch(0, true);
  EXPECT_TRUE(ledger.TakeScratch(10, false));
}

TEST(SlotLedgerTest, WhatReadersHoldBeyondTheirPromisesIsNotPromisedAgain) {
  SlotLedger ledger(1000);
  ASSERT_EQ(ledger.TakeExcess(700, std::nullopt), Excess::kTaken);
  EXPECT_FALSE(ledger.Reserve({.held_bytes = 200, .scratch_bytes = 0}, 2).has_value());
  EXPECT_TRUE(ledger.Reserve({.held_bytes = 0, .scratch_bytes = 0}, 2).has_value())
      << "who needs none is always let in";
  EXPECT_TRUE(ledger.Reserve({.held_bytes = 150, .scratch_bytes = 0}, 2).has_value());
}

TEST(SlotLedgerTest, AStreamTakesUnpromisedMemoryOnlyInProportionToWhatIsLeft) {
  SlotLedger ledger(1000);
  std::uint64_t first = 0, second = 0;
  while (ledger.TakeExcess(10, first) == Excess::kTaken) first += 10;
  EXPECT_EQ(first, 750U) << "three times what is left";
  while (ledger.TakeExcess(10, second) == Excess::kTaken) second += 10;
  EXPECT_EQ(second, 180U);
  EXPECT_FALSE(ledger.HasExcess(10, second));
  EXPECT_TRUE(ledger.HasExcess(50, 0)) << "a third stream finds room";
  EXPECT_EQ(ledger.TakeExcess(70, std::nullopt), Excess::kTaken) << "as does a promised batch";
}

TEST(SlotLedgerTest, ExcessLeavesWhatIsPromised) {
  SlotLedger ledger(1000);
  ASSERT_TRUE(ledger.Reserve({.held_bytes = 100, .scratch_bytes = 200}, 4).has_value());
  EXPECT_EQ(ledger.TakeExcess(401, std::nullopt), Excess::kNever);
  EXPECT_EQ(ledger.TakeExcess(300, std::nullopt), Excess::kTaken);
  EXPECT_EQ(ledger.TakeExcess(101, std::nullopt), Excess::kNotNow);
  EXPECT_TRUE(ledger.TakeScratch(200, false)) << "its share is free all the same";
  EXPECT_FALSE(ledger.TakeScratch(200, false));
  ledger.EndExcess(300);
  EXPECT_TRUE(ledger.TakeScratch(200, false));
  EXPECT_EQ(ledger.TakeExcess(300, std::nullopt), Excess::kNotNow) << "two have scratch";
  ledger.EndScratch(200, false);
  EXPECT_EQ(ledger.TakeExcess(300, std::nullopt), Excess::kTaken);
}

}  // namespace
}  // namespace forebay::stream
