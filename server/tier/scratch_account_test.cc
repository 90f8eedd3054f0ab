#include "server/tier/scratch_account.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::tier {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

class ScratchAccountTest : public ::testing::Test {
 protected:
  // A tier of 32 MiB.
  void Start(std::uint64_t reserve_bytes) {
    auto arena = RamArena::Create(
        {.capacity_bytes = 32 * kMiB, .region_bytes = 16 * kMiB, .first_region = RegionId(0)});
    ASSERT_TRUE(arena.has_value()) << arena.error().ToString();
    arena_ = std::move(*arena);
    auto account = ScratchAccount::Create(*arena_, reserve_bytes);
    ASSERT_TRUE(account.has_value()) << account.error().ToString();
    account_ = std::move(*account);
  }
  ScratchGrant Lease(std::uint64_t bytes, const std::string& owner = "a") {
    Result<ScratchGrant> grant = account_->Lease(owner, bytes);
    EXPECT_TRUE(grant.has_value()) << grant.error().ToString();
    return grant.has_value() ? std::move(*grant) : ScratchGrant();
  }
  std::string Refusal(std::uint64_t bytes, ErrorCode code = ErrorCode::kResourceExhausted) {
    const Result<ScratchGrant> grant = account_->Lease("a", bytes);
    if (grant.has_value()) return "granted";
    EXPECT_EQ(grant.error().code(), code);
    return grant.error().message();
  }
  // Has extents touch `bytes` of the tier, and go again.
  void Use(std::uint64_t bytes) {
    std::vector<ArenaBlock> blocks;
    for (std::uint64_t at = 0; at < bytes; at += 2 * kMiB) {
      auto block = arena_->Allocate(2 * kMiB);
      ASSERT_TRUE(block.has_value()) << block.error().ToString();
      std::memset(block->bytes().data(), 1, block->bytes().size());
      blocks.push_back(std::move(*block));
    }
  }

  std::unique_ptr<RamArena> arena_;
  std::unique_ptr<ScratchAccount> account_;
};

TEST_F(ScratchAccountTest, ALeaseShrinksTheTierUntilItIsGivenBack) {
  Start(0);
  {
    const ScratchGrant grant = Lease(5 * kMiB);
    EXPECT_EQ(grant.bytes(), 5 * kMiB);
    EXPECT_EQ(arena_->capacity_bytes(), 26 * kMiB);
    EXPECT_EQ(account_->stats().leased_bytes, 6 * kMiB);
    EXPECT_EQ(account_->stats().leases, 1U);
  }
  EXPECT_EQ(arena_->capacity_bytes(), 32 * kMiB);
  EXPECT_EQ(account_->stats().leased_bytes, 0U);
  EXPECT_EQ(account_->stats().leases, 0U);
}

TEST_F(ScratchAccountTest, HalfOfTheTierStaysWithIt) {
  Start(0);
  EXPECT_EQ(account_->stats().limit_bytes, 16 * kMiB);
  const ScratchGrant first = Lease(10 * kMiB);
  EXPECT_THAT(Refusal(7 * kMiB), HasSubstr("a lease of 7340032 bytes: 6291456 are left "
                                           "(10485760 of at most 16777216 are leased"));
  EXPECT_THAT(Refusal(7 * kMiB), HasSubstr("tier.ram.scratch_reserve (0 bytes)"));
  EXPECT_EQ(account_->stats().leases, 1U) << "a refusal leaves nothing";
  const ScratchGrant second = Lease(6 * kMiB);
  EXPECT_THAT(Refusal(1), HasSubstr("0 are left"));
}

TEST_F(ScratchAccountTest, TheReserveIsThereWhateverTheTierTouched) {
  Start(5 * kMiB);
  EXPECT_EQ(arena_->capacity_bytes(), 26 * kMiB);
  EXPECT_EQ(account_->stats().reserve_bytes, 6 * kMiB);
  Use(26 * kMiB);
  EXPECT_EQ(arena_->used_bytes(), 0U);
  EXPECT_THAT(Refusal(6 * kMiB + 1), HasSubstr("6291456 are left"));
  const ScratchGrant grant = Lease(6 * kMiB);
  EXPECT_EQ(arena_->capacity_bytes(), 26 * kMiB) << "the tier loses nothing to it";
  EXPECT_THAT(Refusal(1), HasSubstr("0 are left"));
}

TEST_F(ScratchAccountTest, TheReserveComesFirstAndComesBack) {
  Start(4 * kMiB);
  ScratchGrant grant = Lease(10 * kMiB);
  EXPECT_EQ(arena_->capacity_bytes(), 22 * kMiB);
  grant = ScratchGrant();
  EXPECT_EQ(arena_->capacity_bytes(), 28 * kMiB) << "the reserve stays a reserve";
  Use(28 * kMiB);
  const ScratchGrant again = Lease(4 * kMiB);
  EXPECT_EQ(again.bytes(), 4 * kMiB);
}

TEST_F(ScratchAccountTest, AReserveMayBeMoreThanHalf) {
  Start(24 * kMiB);
  EXPECT_EQ(account_->stats().limit_bytes, 24 * kMiB);
  const ScratchGrant grant = Lease(24 * kMiB);
  EXPECT_THAT(Refusal(1), HasSubstr("0 are left"));
}

TEST_F(ScratchAccountTest, WhatExtentsArePlannedForIsNotLeased) {
  Start(2 * kMiB);
  std::uint64_t room = 7 * kMiB;
  account_->PlanWith({.left_bytes = [&] { return room; },
                      .take_bytes =
                          [&](std::uint64_t bytes) {
                            if (bytes > room) return false;
                            room -= bytes;
                            return true;
                          },
                      .give_bytes = [&](std::uint64_t bytes) { room += bytes; }});
  EXPECT_THAT(Refusal(9 * kMiB), HasSubstr("8388608 are left"));
  EXPECT_EQ(room, 7 * kMiB) << "a refusal takes nothing";
  {
    const ScratchGrant grant = Lease(8 * kMiB);
    EXPECT_EQ(room, kMiB) << "the reserve is nobody's room";
    EXPECT_THAT(Refusal(1), HasSubstr("0 are left"));
  }
  EXPECT_EQ(room, 7 * kMiB);
  room = 30 * kMiB;
  Use(28 * kMiB);
  EXPECT_THAT(Refusal(5 * kMiB), HasSubstr("4194304 are left"));
  EXPECT_EQ(room, 30 * kMiB) << "it comes back where the memory was touched";
}

TEST_F(ScratchAccountTest, HostileSizesAreRefused) {
  Start(2 * kMiB);
  EXPECT_THAT(Refusal(0, ErrorCode::kInvalidArgument), HasSubstr("0 bytes"));
  EXPECT_THAT(Refusal(32 * kMiB), HasSubstr("are left"));
  EXPECT_THAT(Refusal(~std::uint64_t{0}), HasSubstr("18446744073709551615"));
  EXPECT_THAT(Refusal(~std::uint64_t{0} - 2 * kMiB + 2), HasSubstr("are left"));
  EXPECT_EQ(account_->stats().leased_bytes, 0U);
}

TEST(ScratchAccount, LeasesOfOneOwnerAreBounded) {
  auto arena = RamArena::Create({.capacity_bytes = 256 * kMiB, .first_region = RegionId(0)});
  ASSERT_TRUE(arena.has_value());
  auto account = ScratchAccount::Create(**arena, 0);
  ASSERT_TRUE(account.has_value());
  std::vector<ScratchGrant> grants;
  for (std::uint32_t i = 0; i < ScratchAccount::kLeasesPerOwnerMax; ++i) {
    auto grant = (*account)->Lease("a", 1);
    ASSERT_TRUE(grant.has_value()) << grant.error().ToString();
    grants.push_back(std::move(*grant));
  }
  const auto refused = (*account)->Lease("a", 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("16 leases at most"));
  EXPECT_TRUE((*account)->Lease("b", 1).has_value()) << "another one has its own";
  grants.pop_back();
  EXPECT_TRUE((*account)->Lease("a", 1).has_value());
}

TEST_F(ScratchAccountTest, AGrantThatIsMovedIsGivenBackOnce) {
  Start(0);
  ScratchGrant first = Lease(2 * kMiB);
  ScratchGrant second = Lease(4 * kMiB);
  second = std::move(first);
  EXPECT_EQ(account_->stats().leased_bytes, 2 * kMiB);
  EXPECT_EQ(first.bytes(), 0U);  // NOLINT: moved from, empty by contract
  const ScratchGrant third(std::move(second));
  EXPECT_EQ(account_->stats().leases, 1U);
}

TEST(ScratchAccount, AReserveThatIsNotThereIsAnError) {
  auto arena = RamArena::Create({.capacity_bytes = 8 * kMiB, .first_region = RegionId(0)});
  ASSERT_TRUE(arena.has_value());
  const auto account = ScratchAccount::Create(**arena, 8 * kMiB + 1);
  ASSERT_FALSE(account.has_value());
  EXPECT_EQ(account.error().code(), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace forebay::tier
