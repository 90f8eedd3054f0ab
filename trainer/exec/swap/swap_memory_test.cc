// The pool of host memory and the link that copies, without LibTorch.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "trainer/exec/swap/copy_link.h"
#include "trainer/exec/swap/host_pool.h"

namespace forebay::train {
namespace {

TEST(HostPoolTest, GivesTheSameBlockAgain) {
  HostPool pool(1000);
  const auto first = pool.Take(600);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->size(), 600U);
  EXPECT_EQ(pool.used_bytes(), 600U);
  pool.Give(*first);
  EXPECT_EQ(pool.used_bytes(), 0U);
  const auto again = pool.Take(600);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->data(), first->data());
  EXPECT_EQ(pool.peak_bytes(), 600U);
}

TEST(HostPoolTest, EndsAtItsCapacity) {
  HostPool pool(1000);
  ASSERT_TRUE(pool.Take(600).has_value());
  const auto refused = pool.Take(401);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("401 bytes"), std::string::npos);
  EXPECT_TRUE(pool.Take(400).has_value());
}

TEST(HostPoolTest, IdleBlocksOfOtherSizesMakeRoom) {
  HostPool pool(1000);
  for (const std::size_t bytes : {600U, 700U, 1000U, 1U}) {
    const auto block = pool.Take(bytes);
    ASSERT_TRUE(block.has_value()) << bytes;
    std::memset(block->data(), 7, bytes);
    pool.Give(*block);
  }
  EXPECT_EQ(pool.peak_bytes(), 1000U);
}

TEST(CopyLinkTest, CopiesInOrder) {
  CopyLink link;
  std::vector<std::byte> chain(1000);
  // Each copy reads what the one before wrote.
  chain[0] = std::byte{42};
  std::uint64_t last = 0;
  for (std::size_t at = 0; at + 1 < chain.size(); ++at) {
    last = link.Begin(std::span(chain).subspan(at + 1, 1), std::span(chain).subspan(at, 1));
  }
  link.Wait(last);
  EXPECT_TRUE(link.Done(last));
  EXPECT_EQ(chain.back(), std::byte{42});
  EXPECT_EQ(link.figures().bytes, 999U);
}

TEST(CopyLinkTest, EndsWhatWasBegun) {
  std::vector<std::byte> from(1 << 20, std::byte{5});
  std::vector<std::byte> to(from.size());
  {
    CopyLink link;
    link.Begin(to, from);
  }
  EXPECT_EQ(to, from);
}

TEST(CopyLinkTest, ASlowLinkTakesAtLeastItsTime) {
  std::vector<std::byte> from(1000);
  std::vector<std::byte> to(1000);
  CopyLink link(0.001);  // 1 ms
  link.Wait(link.Begin(to, from));
  EXPECT_GE(link.figures().busy_ns, 1'000'000U);
}

}  // namespace
}  // namespace forebay::train
