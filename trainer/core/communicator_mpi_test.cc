// Runs under mpirun with two ranks or more; every rank runs every test.
#include "trainer/core/communicator_mpi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace forebay::train {
namespace {

std::unique_ptr<Communicator>& World() {
  static std::unique_ptr<Communicator> world;
  return world;
}

TEST(MpiCommunicator, HasSeveralRanksOnThisNode) {
  ASSERT_GE(World()->size(), 2U);
  EXPECT_LT(World()->rank(), World()->size());
  EXPECT_EQ(World()->local_size(), World()->size());
  EXPECT_TRUE(LaunchedByMpi());
}

TEST(MpiCommunicator, SumsEveryLength) {
  const float ranks = static_cast<float>(World()->size());
  for (const std::size_t length : {0U, 1U, 2U, 3U, 1000U, 100'001U}) {
    std::vector<float> values(length, static_cast<float>(World()->rank() + 1));
    ASSERT_TRUE(World()->AllReduceSum(std::span<float>(values)).has_value());
    const float expected = ranks * (ranks + 1) / 2;
    EXPECT_TRUE(std::ranges::all_of(values, [=](float v) { return v == expected; })) << length;
  }
}

// In single precision 1e8 + 1 is 1e8, so only the sum in the order of ranks gives the expected
// bits whatever the number of ranks.
TEST(MpiCommunicator, SumsInTheOrderOfRanks) {
  const auto addend = [](std::uint32_t rank) {
    return rank == 0 ? 1e8F : rank % 2 == 1 ? 3.0F : -1e8F;
  };
  float expected = addend(0);
  for (std::uint32_t rank = 1; rank < World()->size(); ++rank) expected += addend(rank);
  std::vector<float> values(17, addend(World()->rank()));
  ASSERT_TRUE(World()->AllReduceSum(std::span<float>(values)).has_value());
  for (const float value : values) EXPECT_EQ(value, expected);
}

TEST(MpiCommunicator, SumsDoublesExactly) {
  std::array<double, 3> values = {1e15 + World()->rank(), 0.5, -1};
  ASSERT_TRUE(World()->AllReduceSum(std::span<double>(values)).has_value());
  EXPECT_EQ(values[1], 0.5 * World()->size());
  const double ranks = World()->size();
  EXPECT_EQ(values[0], ranks * 1e15 + ranks * (ranks - 1) / 2);
}

TEST(MpiCommunicator, BroadcastsFromAnyRank) {
  for (std::uint32_t root = 0; root < World()->size(); ++root) {
    std::vector<std::byte> bytes(12'345, static_cast<std::byte>(World()->rank() + 1));
    ASSERT_TRUE(World()->Broadcast(bytes, root).has_value());
    EXPECT_TRUE(std::ranges::all_of(
        bytes, [=](std::byte b) { return b == static_cast<std::byte>(root + 1); }));
  }
  ASSERT_TRUE(World()->Barrier().has_value());
}

TEST(MpiCommunicator, WrongRootIsRefusedOnEveryRank) {
  std::array<std::byte, 1> byte = {};
  EXPECT_FALSE(World()->Broadcast(byte, World()->size()).has_value());
}

TEST(MpiCommunicator, SecondInitialisationIsRefused) {
  const auto second = MakeMpiCommunicator();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto world = forebay::train::MakeMpiCommunicator();
  if (!world.has_value()) return 1;
  forebay::train::World() = *std::move(world);
  const int failed = RUN_ALL_TESTS();
  forebay::train::World().reset();
  return failed;
}
