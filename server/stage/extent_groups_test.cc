// Which extents belong to one group, for each way in which a format cuts objects into extents. All
// nodes must compute the same keys, so some of these tests compute them without a catalog.
#include "server/stage/extent_groups.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"
#include "server/plan/ownership.h"
#include "server/tier/extent_key.h"

namespace forebay::stage::extent_groups_test {

using catalog::Catalog;
using catalog::ExtentInfo;
using catalog::Format;
using catalog::PatternText;

class ExtentGroupsTest : public catalog::ScanFixture {
 protected:
  ExtentGroupsTest() { source_.name = "data"; }

  // A file of records of `record_bytes`.
  void AddRecords(const std::string& field, std::uint64_t count, std::uint64_t record_bytes) {
    AddFile(field + ".bin", PatternText(count * record_bytes, 1));
    files_.push_back(field + "=" + field + ".bin");
    source_.format = Format::kRaw;
    source_.settings.SetTexts("files", files_);
    source_.settings.SetNumbers("shape", {record_bytes});
  }
  std::shared_ptr<const Catalog> Built() {
    auto built = Build();
    EXPECT_TRUE(built.has_value()) << (built ? "" : built.error().ToString());
    return built.value_or(nullptr);
  }
  std::uint64_t Key(std::uint32_t object, std::uint64_t range = 0) const {
    return GroupKeyOf(tier::DatasetHash(source_.name), ObjectId(object), range);
  }

  std::vector<std::string> files_;
};

TEST_F(ExtentGroupsTest, ALargeObjectHasAGroupForEachRange) {
  AddRecords("x", 1000, 100);
  source_.extent_bytes = 3000;
  const auto catalog = Built();
  ASSERT_NE(catalog, nullptr);
  const std::vector<std::uint64_t> keys = RawGroupKeys(*catalog, 10'000);
  ASSERT_EQ(keys.size(), catalog->extent_count());
  std::map<std::uint64_t, std::uint64_t> bytes;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const ExtentInfo extent = catalog->extent(ExtentId(i));
    EXPECT_EQ(keys[i], Key(0, extent.object_offset / 10'000)) << i;
    bytes[keys[i]] += extent.bytes;
  }
  EXPECT_EQ(bytes.size(), 10U);
  for (const auto& [key, sum] : bytes) {
    EXPECT_GT(sum, 10'000 - 3000U) << "a group is about as large as its range";
    EXPECT_LT(sum, 10'000 + 3000U);
  }
}

TEST_F(ExtentGroupsTest, ObjectsThatSupplyFieldsOfTheSameSamplesAreGroupsOfTheirOwn) {
  AddRecords("x", 50, 100);
  AddRecords("y", 50, 100);
  source_.extent_bytes = 1000;
  const auto catalog = Built();
  ASSERT_NE(catalog, nullptr);
  const std::vector<std::uint64_t> keys = RawGroupKeys(*catalog, 1 << 20);
  ASSERT_EQ(keys.size(), 10U);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(keys[i], Key(catalog->extent(ExtentId(i)).first_object.value())) << i;
  }
  EXPECT_NE(keys.front(), keys.back());
}

// Each record takes two or three extents, and the ranges end within records.
TEST_F(ExtentGroupsTest, TheExtentsOfAChainAreInOneGroup) {
  AddRecords("x", 40, 1000);
  source_.extent_bytes = 400;
  const auto catalog = Built();
  ASSERT_NE(catalog, nullptr);
  ASSERT_EQ(catalog->extent_count(), 120U);
  const std::vector<std::uint64_t> keys = RawGroupKeys(*catalog, 2700);
  int crossings = 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const ExtentInfo extent = catalog->extent(ExtentId(i));
    const std::uint64_t begins_at = extent.first_sample.value() * 1000;
    EXPECT_EQ(keys[i], Key(0, begins_at / 2700)) << i;
    crossings += extent.object_offset / 2700 == begins_at / 2700 ? 0 : 1;
  }
  EXPECT_GT(crossings, 10) << "no range ended within a record";
}

TEST_F(ExtentGroupsTest, SmallObjectsAreGroupedByExtentAndALargeOneIsNotSplitInItsChain) {
  for (int i = 0; i < 20; ++i) {
    AddFile("class/" + std::to_string(100 + i), PatternText(i == 9 ? 5000 : 300, 1));
  }
  source_.extent_bytes = 1000;
  std::vector<std::uint64_t> early;  // of runs, before there is a catalog
  const auto built = catalog::BuildFromMetadata(
      backend_, *root_, source_, nullptr,
      [&](ExtentId, const ExtentInfo& run, std::span<const catalog::ObjectInfo>) {
        early.push_back(Key(run.first_object.value()));
      });
  ASSERT_TRUE(built.has_value()) << built.error().ToString();
  const std::vector<std::uint64_t> keys = RawGroupKeys(**built, 2000);
  std::vector<std::uint64_t> of_runs;
  std::vector<std::uint64_t> of_chain;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const ExtentInfo extent = (*built)->extent(ExtentId(i));
    (extent.first_object == ObjectId(9) ? of_chain : of_runs).push_back(keys[i]);
  }
  EXPECT_EQ(of_runs, early);
  EXPECT_EQ(of_runs.size(), 7U);
  EXPECT_EQ(of_chain, std::vector<std::uint64_t>(5, Key(9)));
}

// The keys are known before the scan, from the list of objects.
TEST_F(ExtentGroupsTest, AnObjectThatMustBeScannedIsOneGroup) {
  for (int shard = 0; shard < 3; ++shard) {
    std::string text;
    for (int i = 0; i < 30; ++i) {
      text += catalog::TarFileText(std::to_string(100 * shard + i) + ".bin",
                                   PatternText(i == 7 ? 3000 : 200, 1));
    }
    AddFile("shard" + std::to_string(shard) + ".tar", text + catalog::TarEndText());
  }
  source_.extent_bytes = 2048;
  const auto scanned = Scan();
  ASSERT_TRUE(scanned.has_value()) << scanned.error().ToString();
  const std::vector<std::uint64_t> keys = RawGroupKeys(**scanned, 1);
  ASSERT_GT(keys.size(), 30U);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(keys[i], Key((*scanned)->extent(ExtentId(i)).first_object.value())) << i;
  }
}

// Nodes of different versions must agree: a change of a key is a change of the protocol.
TEST_F(ExtentGroupsTest, KeysArePublished) {
  EXPECT_EQ(GroupKeyOf(42, ObjectId(0)), plan::GroupKey(42, 0));
  EXPECT_EQ(GroupKeyOf(42, ObjectId(3)), plan::GroupKey(42, 3ULL << 32));
  EXPECT_EQ(GroupKeyOf(42, ObjectId(3), 5), plan::GroupKey(42, (3ULL << 32) + 5));
}

// The bytes of each node, if the extents of the catalog are divided among `count` nodes.
std::vector<std::uint64_t> BytesOfNodes(const Catalog& catalog, std::uint32_t count) {
  std::vector<plan::Node> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back({.rank = NodeRank(rank)});
  const plan::Membership membership(NodeRank(0), nodes);
  const std::vector<plan::GroupShare> shares = GroupShares(catalog, 0, membership);
  std::vector<std::uint64_t> bytes(count);
  for (std::uint32_t i = 0; i < shares.size(); ++i) {
    const NodeRank owner = membership.nodes()[shares[i].owner].rank;
    EXPECT_EQ(membership.Ranked(shares[i].key).front(), owner);
    bytes[owner.value()] += catalog.extent(ExtentId(i)).bytes;
  }
  return bytes;
}

TEST_F(ExtentGroupsTest, ALargeObjectIsDividedEvenly) {
  AddRecords("x", 1000, 100);
  source_.extent_bytes = 1000;
  const auto catalog = Built();
  ASSERT_NE(catalog, nullptr);
  for (const std::uint64_t bytes : BytesOfNodes(*catalog, 4)) {
    EXPECT_LE(bytes, 25'000 + 25'000 / 32 + 1000U);
    EXPECT_GE(bytes, 18'000U);
  }
}

TEST_F(ExtentGroupsTest, SmallObjectsKeepTheKeysThatTheyHadBeforeThereWasACatalog) {
  for (int i = 0; i < 200; ++i) AddFile("class/" + std::to_string(1000 + i), PatternText(300, 1));
  source_.extent_bytes = 1000;
  const auto catalog = Built();
  ASSERT_NE(catalog, nullptr);
  const plan::Membership nodes(NodeRank(0), {{.rank = NodeRank(0)}, {.rank = NodeRank(1)}});
  std::vector<std::uint64_t> keys;
  for (const plan::GroupShare& share : GroupShares(*catalog, 0, nodes)) keys.push_back(share.key);
  EXPECT_EQ(keys, RawGroupKeys(*catalog, RangeBytes(*catalog, 2)));
}

TEST_F(ExtentGroupsTest, ALargeJobHasManyGroupsForEachNode) {
  // An extent for each of 64 groups of 320 nodes.
  constexpr std::uint32_t kNodes = 320;
  AddRecords("x", 64 * kNodes, 2);
  source_.extent_bytes = 2;
  const auto catalog = Built();
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(RangeBytes(*catalog, 1), 2U);
  EXPECT_EQ(RangeBytes(*catalog, 256), 2U) << "as in smaller jobs";
  EXPECT_EQ(RangeBytes(*catalog, kNodes), 2U);
  EXPECT_EQ(RangeBytes(*catalog, 65'536), 1U) << "no less than a byte";
  std::vector<plan::Node> nodes;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) nodes.push_back({.rank = NodeRank(rank)});
  std::vector<std::uint32_t> extents_of_nodes(kNodes);
  for (const plan::GroupShare& share :
       GroupShares(*catalog, 0, plan::Membership(NodeRank(0), nodes))) {
    ++extents_of_nodes[share.owner];
  }
  EXPECT_LE(std::ranges::max(extents_of_nodes), 64 + 64 / 32 + 1U);
}

TEST_F(ExtentGroupsTest, TheRangesOfALargeJobAreSmaller) {
  AddRecords("x", 1 << 20, 2);
  source_.extent_bytes = 1 << 20;
  const auto catalog = Built();
  ASSERT_NE(catalog, nullptr);
  constexpr std::uint64_t kBytes = 2 << 20;
  EXPECT_EQ(RangeBytes(*catalog, 2), kBytes >> 14);
  EXPECT_EQ(RangeBytes(*catalog, 256), kBytes >> 14);
  EXPECT_EQ(RangeBytes(*catalog, 1024), kBytes >> 16);
}

}  // namespace forebay::stage::extent_groups_test
