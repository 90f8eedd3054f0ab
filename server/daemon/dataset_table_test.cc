// The table of data sets, before, while and after a rebuild replaces one of them.
#include "server/daemon/dataset_table.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::daemon {
namespace {

using io::testing::Take;

class DatasetTableTest : public ::testing::Test {
 protected:
  DatasetTableTest() {
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", io::testing::Pattern(1000)).has_value());
  }
  std::unique_ptr<stage::Dataset> Make(const std::string& name) {
    stage::DatasetOptions options;
    options.source.name = name;
    return std::make_unique<stage::Dataset>(options, memory_, Take(memory_.OpenDirectory("/gfs")));
  }

  io::MemoryBackend memory_;
  DatasetTable table_;
};

TEST_F(DatasetTableTest, ASuccessorIsServedAfterASwapAndTheOldOneIsKept) {
  table_.Add(Make("a"));
  table_.Add(Make("b"));
  stage::Dataset* const old = table_.Find("a");
  auto successor = Make("a");
  stage::Dataset* const next = successor.get();
  ASSERT_TRUE(table_.Keep(std::move(successor)).has_value());
  EXPECT_EQ(table_.Find("a"), old);
  table_.Swap(*old, *next);
  EXPECT_EQ(table_.Find("a"), next);
  EXPECT_EQ(table_.Served().size(), 2U);
  EXPECT_EQ(table_.Served().front(), next);
  EXPECT_EQ(table_.All().size(), 3U);
  EXPECT_EQ(table_.Find("c"), nullptr);
}

TEST_F(DatasetTableTest, TheServedDataSetIsFoundByTheHashOfItsName) {
  table_.Add(Make("a"));
  table_.Add(Make("b"));
  const std::uint64_t hash = table_.Find("b")->hash();
  EXPECT_EQ(table_.FindByHash(hash), table_.Find("b"));
  auto successor = Make("b");
  stage::Dataset* const next = successor.get();
  ASSERT_TRUE(table_.Keep(std::move(successor)).has_value());
  table_.Swap(*table_.Find("b"), *next);
  EXPECT_EQ(table_.FindByHash(hash), next);
  EXPECT_EQ(table_.FindByHash(hash + 1), nullptr);
}

TEST_F(DatasetTableTest, KeepsALimitedNumberOfReplacedDatasets) {
  table_.Add(Make("a"));
  for (std::size_t i = 0; i < limits::kReplacedDatasetsMax; ++i) {
    ASSERT_TRUE(table_.Keep(Make("a")).has_value());
  }
  const Status refused = table_.Keep(Make("a"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
}

// Drain, status and the scrubber call All while a rebuild calls Swap.
TEST_F(DatasetTableTest, AllListsEachDatasetOnceWhileTheyAreSwapped) {
  table_.Add(Make("a"));
  stage::Dataset* const old = table_.Find("a");
  auto made = Make("a");
  stage::Dataset* const next = made.get();
  ASSERT_TRUE(table_.Keep(std::move(made)).has_value());
  std::atomic<std::uint64_t> swaps = 0;
  std::jthread rebuild([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const bool is_old_served = swaps % 2 == 0;
      table_.Swap(is_old_served ? *old : *next, is_old_served ? *next : *old);
      ++swaps;
    }
  });
  // However the threads are scheduled, so many lists are made, and so many swaps beside them.
  std::uint64_t wrong = 0;
  for (std::uint64_t lists = 0; lists < 4'000'000 || swaps < 4'000'000; ++lists) {
    const std::vector<stage::Dataset*> all = table_.All();
    const bool right = all.size() == 2 && std::ranges::count(all, old) == 1 &&
                       std::ranges::count(all, next) == 1;
    if (!right) ++wrong;
  }
  rebuild.request_stop();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace forebay::daemon
