// The union of intervals by numbers, and the busy time of a processor under the profiler.
#include "bench/gpu/gpu_busy.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::train {
namespace {

TEST(UnionNs, CountsWhatOverlapsOnce) {
  EXPECT_EQ(UnionNs({}), 0U);
  EXPECT_EQ(UnionNs({{10, 20}, {30, 35}}), 15U);
  EXPECT_EQ(UnionNs({{10, 20}, {15, 30}}), 20U);
}

TEST(UnionNs, TakesIntervalsInAnyOrder) {
  EXPECT_EQ(UnionNs({{30, 35}, {10, 20}, {18, 32}}), 25U);
}

TEST(UnionNs, CountsWhatLiesWithinAnotherOnce) {
  EXPECT_EQ(UnionNs({{0, 100}, {10, 20}, {90, 100}, {99, 101}}), 101U);
  EXPECT_EQ(UnionNs({{5, 9}, {5, 9}, {5, 7}}), 4U);
}

TEST(UnionNs, TakesWhatTouchesAndWhatIsEmpty) {
  EXPECT_EQ(UnionNs({{10, 20}, {20, 30}, {25, 25}, {40, 40}}), 20U);
}

class BusyNsTest : public ::testing::Test {
 protected:
  const c10::Device processor_{c10::kCPU};
};

TEST_F(BusyNsTest, SeesOperatorsAndNotWhatLiesBetween) {
  const at::Tensor values = at::ones({200, 200});
  const auto began = std::chrono::steady_clock::now();
  double sum = 0;
  const Result<std::uint64_t> busy_ns = BusyNs(processor_, [&]() -> Status {
    const at::Tensor product = at::mm(values, values);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (std::chrono::steady_clock::now() < until) sum += 1;
    return {};
  });
  const auto took_ns =
      static_cast<std::uint64_t>((std::chrono::steady_clock::now() - began).count());
  ASSERT_TRUE(busy_ns.has_value()) << busy_ns.error().ToString();
  EXPECT_GT(sum, 0);
  EXPECT_GT(*busy_ns, 0U);
  EXPECT_LT(*busy_ns + 19'000'000, took_ns);
}

TEST_F(BusyNsTest, SaysSoWhereItSeesNothing) {
  const Result<std::uint64_t> busy_ns = BusyNs(processor_, []() -> Status { return {}; });
  ASSERT_FALSE(busy_ns.has_value());
  EXPECT_EQ(busy_ns.error().code(), ErrorCode::kFailedPrecondition);
}

TEST_F(BusyNsTest, PassesAFailureOnAndCanBeCalledAgain) {
  const Result<std::uint64_t> failed = BusyNs(
      processor_, []() -> Status { return Error(ErrorCode::kDataLoss, "a step failed"); });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kDataLoss);
  EXPECT_TRUE(BusyNs(processor_, []() -> Status {
                at::ones({2});
                return {};
              }).has_value());
}

}  // namespace
}  // namespace forebay::train
