// The order of a sum and the sizes of shares, against values that are worked out here; collectives
// over a transport are in transport/transport_suite_test.cc.
#include "trainer/comm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "trainer/comm/communicator.h"

namespace {
// The largest array that was allocated since it was last set to 0.
std::size_t largest_array_bytes = 0;
}  // namespace

void* operator new[](std::size_t bytes) {
  largest_array_bytes = std::max(largest_array_bytes, bytes);
  return operator new(bytes);
}
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }

namespace forebay::train {
namespace {

// The definition: a node is the sum of its halves, and the right one may be missing.
float TreeOf(const std::vector<float>& leaves, std::size_t begin, std::size_t width) {
  if (width == 1) return leaves[begin];
  const std::size_t half = width / 2;
  const float left = TreeOf(leaves, begin, half);
  if (begin + half >= leaves.size()) return left;
  return left + TreeOf(leaves, begin + half, half);
}

TEST(SumTreeTest, IsTheTreeOverTheIndexForAnyCount) {
  for (std::size_t count = 1; count <= 17; ++count) {
    std::vector<float> leaves;
    for (std::size_t at = 0; at < count; ++at) {
      leaves.push_back((at % 3 == 1 ? 4e7F : 1.5F) + 0.3F * static_cast<float>(at));
    }
    const float expected = TreeOf(leaves, 0, 32);
    std::vector<float*> pointers;
    for (float& leaf : leaves) pointers.push_back(&leaf);
    SumTree<float>(pointers, 1);
    EXPECT_EQ(leaves[0], expected) << count;
  }
}

TEST(SumTreeTest, TheSumMayTakeThePlaceOfAnyLeafOrNone) {
  constexpr std::size_t kLength = 10'000;  // more than is summed in one go
  for (std::size_t count = 1; count <= 6; ++count) {
    for (std::size_t place = 0; place <= count; ++place) {
      std::vector<std::vector<float>> leaves(count + 1, std::vector<float>(kLength));
      std::vector<float*> pointers;
      for (std::size_t leaf = 0; leaf < count; ++leaf) {
        for (std::size_t at = 0; at < kLength; ++at) {
          leaves[leaf][at] = (leaf % 3 == 1 ? 4e7F : 1.5F) + 0.3F * static_cast<float>(leaf + at);
        }
        pointers.push_back(leaves[leaf].data());
      }
      std::vector<float> expected;
      for (std::size_t at = 0; at < kLength; ++at) {
        std::vector<float> column;
        for (std::size_t leaf = 0; leaf < count; ++leaf) column.push_back(leaves[leaf][at]);
        expected.push_back(TreeOf(column, 0, 8));
      }
      SumTree<float>(pointers, kLength, leaves[place].data());
      EXPECT_EQ(leaves[place], expected) << place << " of " << count;
    }
  }
}

// What plans count for a reduction is what it allocates.
TEST(ReduceScatterTest, HoldsAsManyElementsAsPlansCount) {
  for (const std::uint32_t members : {2U, 3U, 4U, 7U}) {
    std::vector<float> values(1000);
    Members all;
    for (std::uint32_t rank = 0; rank < members; ++rank) all.ranks.push_back(rank);
    largest_array_bytes = 0;
    const AllReduce<float> reduction(all, {}, values);
    EXPECT_EQ(largest_array_bytes, ArrivingElements(1000, members) * sizeof(float));
  }
  EXPECT_EQ(ArrivingElements(1000, 1), 0U);
  EXPECT_EQ(ArrivingElements(1000, 4), 750U);
}

TEST(MembersTest, AreAscendingRanksWithThisOneAmongThem) {
  const auto members = MakeMembers({1, 4, 6}, 4);
  ASSERT_TRUE(members.has_value());
  EXPECT_EQ(members->self, 1U);
  EXPECT_FALSE(MakeMembers({1, 4, 6}, 5).has_value());
  EXPECT_FALSE(MakeMembers({4, 1}, 1).has_value());
  EXPECT_FALSE(MakeMembers({1, 1}, 1).has_value());
  EXPECT_FALSE(MakeMembers({}, 0).has_value());
}

TEST(CommunicatorTest, OneProcessNeedsNobody) {
  Communicator alone = Communicator::Alone();
  std::vector<float> values = {1.5F, -2};
  ASSERT_TRUE(alone.AllReduceSum(std::span<float>(values)).has_value());
  EXPECT_EQ(values, (std::vector<float>{1.5F, -2}));
  std::vector<std::byte> bytes(3, std::byte{7});
  ASSERT_TRUE(alone.Broadcast(bytes, 0).has_value());
  EXPECT_EQ(bytes[2], std::byte{7});
  EXPECT_FALSE(alone.Broadcast(bytes, 1).has_value());
  EXPECT_TRUE(alone.Barrier().has_value());
  EXPECT_EQ(alone.size(), 1U);
}

}  // namespace
}  // namespace forebay::train
