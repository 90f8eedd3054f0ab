// The extents of a home share, against a walk through epochs of the stream itself.
#include "server/stream/home_extents.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/order.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::home_extents_test {

constexpr std::uint64_t kSamples = 1024;
constexpr std::size_t kRecordBytes = 1000;  // 65 in an extent

class HomeExtentsTest : public ::testing::Test {
 protected:
  HomeExtentsTest() {
    EXPECT_TRUE(backend_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
    auto made = ServeFixture::Create(backend_, kRecordBytes, {});
    EXPECT_TRUE(made.has_value());
    serve_ = std::move(*made);
    EXPECT_TRUE(serve_->StageAll().has_value());
  }
  StreamSpec Spec(const ServeFixture::Ask& ask) {
    auto spec = ResolveStream(serve_->dataset(), *serve_->Request(ask));
    EXPECT_TRUE(spec.has_value()) << spec.error().ToString();
    return *spec;
  }
  // The extents of all samples that the rank reads in an epoch.
  static std::set<std::uint32_t> Read(const StreamSpec& spec, EpochId epoch) {
    const Order order(spec.order, epoch);
    std::set<std::uint32_t> extents;
    for (std::uint64_t step = 0; step < spec.plan.steps(); ++step) {
      const auto slice = spec.plan.RankSlice(StepId(step), spec.rank);
      EXPECT_TRUE(slice.has_value());
      for (std::uint64_t i = 0; i < slice->count; ++i) {
        extents.insert(static_cast<std::uint32_t>(
            order.Forward(Position(slice->first + i)) / 65));
      }
    }
    return extents;
  }
  static std::set<std::uint32_t> Set(const std::vector<ExtentId>& extents) {
    std::set<std::uint32_t> set;
    for (const ExtentId extent : extents) set.insert(extent.value());
    EXPECT_EQ(set.size(), extents.size()) << "each once";
    return set;
  }

  io::MemoryBackend backend_;
  std::unique_ptr<ServeFixture> serve_;
};

TEST_F(HomeExtentsTest, WithoutAnExchangeTheyAreWhatEveryEpochReads) {
  std::set<std::uint32_t> all;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const StreamSpec spec = Spec({.mode = OrderMode::kPartial,
                                  .block_samples = 65,
                                  .canonical_nodes = 4,
                                  .exchange_millionths = 0,
                                  .ranks = 2,
                                  .rank = rank});
    const std::set<std::uint32_t> home = Set(HomeExtents(spec));
    for (const std::uint32_t epoch : {0U, 5U}) EXPECT_EQ(home, Read(spec, EpochId(epoch)));
    all.insert(home.begin(), home.end());
  }
  EXPECT_EQ(all.size(), 16U);
}

TEST_F(HomeExtentsTest, TheExchangeDoesNotChangeThem) {
  ServeFixture::Ask ask = {.mode = OrderMode::kPartial, .block_samples = 65, .ranks = 4, .rank = 3};
  ask.exchange_millionths = 0;
  const std::vector<ExtentId> home = HomeExtents(Spec(ask));
  ask.exchange_millionths = 500'000;
  EXPECT_EQ(HomeExtents(Spec(ask)), home);
  EXPECT_LT(home.size(), 8U);
  EXPECT_GT(Read(Spec(ask), EpochId(0)).size(), home.size()) << "what others gave";
}

TEST_F(HomeExtentsTest, OtherModesHaveNone) {
  EXPECT_TRUE(HomeExtents(Spec({})).empty());
  EXPECT_TRUE(HomeExtents(Spec({.mode = OrderMode::kBlock})).empty());
}

}  // namespace forebay::stream::home_extents_test
