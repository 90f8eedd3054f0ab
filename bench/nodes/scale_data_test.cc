// The catalogs of data sets that do not exist: small ones, whose samples are looked up; and what a
// node's start finds in them.
#include "bench/nodes/scale_data.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "bench/nodes/scale_service.h"
#include "bench/nodes/scale_state.h"
#include "bench/nodes/scale_traffic.h"
#include "server/catalog/catalog.h"
#include "server/catalog/pack/pack_table.h"
#include "server/io/backend_selection.h"

namespace forebay::bench {
namespace {

class ScaleDataTest : public ::testing::Test {
 protected:
  ScaleDataTest() {
    folder_ = (std::filesystem::temp_directory_path() / "scale_test.XXXXXX").string();
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    auto selected = io::SelectBackend(io::BackendChoice::kThreads, 1);
    EXPECT_TRUE(selected.has_value());
    backend_ = std::move(selected->backend);
  }
  ~ScaleDataTest() override { std::filesystem::remove_all(folder_); }

  std::string Saved(const DataSize& data) {
    const auto path = SaveCatalogOf(data, *backend_, folder_);
    EXPECT_TRUE(path.has_value()) << path.error().ToString();
    return path.value_or("");
  }
  std::shared_ptr<const catalog::Catalog> Loaded(const DataSize& data) {
    const auto catalog = catalog::Catalog::Load(Saved(data));
    EXPECT_TRUE(catalog.has_value()) << catalog.error().ToString();
    return catalog.value_or(nullptr);
  }

  std::string folder_;
  std::unique_ptr<io::IoBackend> backend_;
};

TEST_F(ScaleDataTest, APackHasItsSamplesWhereTheLayoutSays) {
  const DataSize data = {.form = DataForm::kPack, .sample_count = 2'000'000};
  const auto catalog = Loaded(data);
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(catalog->sample_count(), data.sample_count);
  EXPECT_EQ(catalog->object_count(), 4U) << "2,000,000 samples of 2 KiB in packs of 1 GiB";
  const plan::Membership nodes(NodeRank(0), NodesOf(4));
  const Layout layout = LayoutOf(*catalog, data.sample_bytes, nodes);
  const std::uint64_t odd_step = 9'973;
  for (std::uint64_t sample = 0; sample < data.sample_count; sample += odd_step) {
    const std::uint64_t chunk = catalog->packs()->GroupOf(0, SampleId(sample)).first;
    const ExtentId extent = catalog->packs()->chunk(chunk).extent;
    EXPECT_EQ(layout.OwnerOf(sample), layout.shares[extent.value()].owner) << sample;
  }
}

TEST_F(ScaleDataTest, RecordsLieWhereTheLayoutSays) {
  const DataSize data = {.form = DataForm::kRecords, .sample_count = 2'000'000};
  const auto catalog = Loaded(data);
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(catalog->total_bytes(), data.sample_count * data.sample_bytes);
  const plan::Membership nodes(NodeRank(0), NodesOf(4));
  const Layout layout = LayoutOf(*catalog, data.sample_bytes, nodes);
  for (std::uint64_t sample = 0; sample < data.sample_count; sample += 9'973) {
    const auto range = catalog->samples()->SampleRange(SampleId(sample), 0);
    ASSERT_TRUE(range.has_value());
    EXPECT_EQ(layout.OwnerOf(sample), layout.shares[range->extent.value()].owner) << sample;
  }
}

TEST_F(ScaleDataTest, ShardsHaveNoCatalog) {
  const DataSize data = {.form = DataForm::kShards, .sample_count = 2'000'000};
  EXPECT_EQ(ShardCount(data), 4U);
  const auto path = SaveCatalogOf(data, *backend_, folder_);
  ASSERT_FALSE(path.has_value());
  EXPECT_EQ(path.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(ScaleDataTest, MoreSamplesThanAnObjectHasBytesAreRefused) {
  const DataSize data = {
      .form = DataForm::kRecords, .sample_count = limits::kSampleCountMax, .sample_bytes = 4096};
  EXPECT_FALSE(SaveCatalogOf(data, *backend_, folder_).has_value());
}

TEST_F(ScaleDataTest, AStartFindsTheExtentsOfTheNode) {
  const DataSize data = {
      .form = DataForm::kRecords, .sample_count = 2'000'000, .extent_bytes = limits::kMiB};
  const std::string path = Saved(data);
  Result<Prefetch> prefetch = Prefetch();
  const auto look_ahead = [&](stage::Dataset& dataset) -> Status {
    FOREBAY_ASSIGN(prefetch, PrefetchOf(dataset, {.mode = OrderMode::kSequential}, 4, 64, 1));
    return {};
  };
  const auto state = MeasureStart(path, 4, *backend_, folder_, look_ahead);
  ASSERT_TRUE(state.has_value()) << state.error().ToString();
  const auto catalog = catalog::Catalog::Load(path).value();
  EXPECT_EQ(state->extents, catalog->extent_count());
  EXPECT_EQ(state->image_bytes, catalog->image().size());
  const plan::Membership nodes(NodeRank(0), NodesOf(4));
  const Layout layout = LayoutOf(*catalog, data.sample_bytes, nodes);
  std::uint64_t own = 0;
  for (const plan::GroupShare& share : layout.shares) own += share.owner == 0 ? 1 : 0;
  EXPECT_EQ(state->own_extents, own);
  ASSERT_TRUE(prefetch.has_value()) << prefetch.error().ToString();
  EXPECT_GT(prefetch->extents, 0U);
  EXPECT_LE(prefetch->extents, own);
  EXPECT_GE(state->peak_bytes + limits::kMiB, state->kept_bytes);
}

TEST_F(ScaleDataTest, AStartWithoutACatalogIsAnError) {
  EXPECT_FALSE(MeasureStart(folder_ + "/none", 4, *backend_, folder_, [](stage::Dataset&) {
                 return Status();
               }).has_value());
}

}  // namespace
}  // namespace forebay::bench
