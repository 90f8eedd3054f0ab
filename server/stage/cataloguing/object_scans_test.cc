// What a node says of the parts that it has not got, while its own attempt is under way.
#include "server/stage/cataloguing/object_scans.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/catalog/format_driver.h"
#include "server/io/testing/io_test_fixture.h"

namespace forebay::stage {
namespace {

using io::testing::Take;

constexpr std::int64_t kFoundNs = 5'000'000'000;

class ObjectScansTest : public ::testing::Test {
 protected:
  static catalog::ScanPlan PlanOf(std::uint32_t objects) {
    catalog::ScanPlan plan;
    plan.format = catalog::FindDriver("jsonl")->format;
    for (std::uint32_t i = 0; i < objects; ++i) {
      plan.objects.push_back({.path = std::to_string(i) + ".jsonl", .bytes = 8, .mtime_ns = 0});
    }
    return plan;
  }
  PartAnswer Ask(std::uint32_t object, std::int64_t now_ns) {
    catalog::MemorySink part;
    return Take(scans_.Encode(ObjectId(object), part, now_ns));
  }

  ObjectScans scans_{PlanOf(4), {}};
};

TEST_F(ObjectScansTest, APartThatIsMissingIsWanted) {
  const PartAnswer answer = Ask(2, kFoundNs);
  EXPECT_FALSE(answer.is_there);
  EXPECT_FALSE(answer.failure.has_value());
  EXPECT_TRUE(scans_.IsWanted(ObjectId(2)));
  EXPECT_FALSE(scans_.IsWanted(ObjectId(1)));
}

TEST_F(ObjectScansTest, WhatThisNodeHasFoundIsTrueAsLongAsTheAttemptLasts) {
  scans_.Refuse(ObjectId(1), {.error = Error(ErrorCode::kDataLoss, "cut"), .at_ns = kFoundNs});
  const auto failure = Ask(3, kFoundNs + 2 * CatalogFailure::kKnownNs).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error.message(), "cut");
  EXPECT_EQ(failure->age_ns, 0);
  EXPECT_FALSE(failure->is_reported);
  EXPECT_FALSE(Ask(0, kFoundNs).failure.has_value()) << "objects before it are still needed";
  EXPECT_EQ(scans_.ReportedNs(), std::nullopt);
}

TEST_F(ObjectScansTest, WhatAnotherNodeHasFoundIsPassedOnUntilItIsOld) {
  scans_.Refuse(ObjectId(1), {.error = Error(ErrorCode::kDataLoss, "node 7: cut"),
                              .at_ns = kFoundNs,
                              .is_reported = true});
  const auto failure = Ask(1, kFoundNs + 3'000'000'000).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error.message(), "node 7: cut");
  EXPECT_EQ(failure->age_ns, 3'000'000'000);
  EXPECT_TRUE(failure->is_reported);
  EXPECT_EQ(scans_.ReportedNs(), kFoundNs);
  const PartAnswer later = Ask(1, kFoundNs + CatalogFailure::kKnownNs);
  EXPECT_FALSE(later.is_there);
  EXPECT_FALSE(later.failure.has_value());
}

TEST_F(ObjectScansTest, TheFirstObjectThatIsRefusedDecides) {
  const auto refuse = [&](std::uint32_t object, std::int64_t at_ns, bool is_reported) {
    scans_.Refuse(ObjectId(object),
                  {.error = Error(ErrorCode::kDataLoss, std::to_string(object)),
                   .at_ns = at_ns,
                   .is_reported = is_reported});
  };
  refuse(2, kFoundNs, true);
  refuse(3, kFoundNs + 1, false);
  EXPECT_EQ(scans_.ReportedNs(), kFoundNs);
  refuse(1, kFoundNs + 2, false);
  EXPECT_EQ(scans_.ReportedNs(), std::nullopt);
  EXPECT_EQ(scans_.Write().error().message(), "1");
  EXPECT_EQ(scans_.Missing(), std::vector<ObjectId>{ObjectId(0)});
}

}  // namespace
}  // namespace forebay::stage
