// The answer of a node that is still scanning to another one that asks for a part which it lacks.
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
  scans_.Refuse(ObjectId(1), Error(ErrorCode::kDataLoss, "cut"));
  const auto failure = Ask(3, kFoundNs + 2 * CatalogFailure::kKnownNs).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error.message(), "cut");
  EXPECT_EQ(failure->age_ns, 0);
  EXPECT_FALSE(failure->is_reported);
  EXPECT_FALSE(Ask(0, kFoundNs).failure.has_value()) << "objects before it are still needed";
  EXPECT_EQ(scans_.ReportedNs(), std::nullopt);
}

TEST_F(ObjectScansTest, WhatAnotherNodeHasFoundIsPassedOnUntilItIsOld) {
  scans_.Refuse(ObjectId(1), Error(ErrorCode::kDataLoss, "node 7: cut"), kFoundNs);
  const auto failure = Ask(1, kFoundNs + 3'000'000'000).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error.message(), "node 7: cut");
  EXPECT_EQ(failure->age_ns, 3'000'000'000);
  EXPECT_TRUE(failure->is_reported);
  const PartAnswer later = Ask(1, kFoundNs + CatalogFailure::kKnownNs);
  EXPECT_FALSE(later.is_there);
  EXPECT_FALSE(later.failure.has_value());
}

TEST_F(ObjectScansTest, AReportThatCameLaterThanTheClockWasReadHasNoNegativeAge) {
  scans_.Refuse(ObjectId(1), Error(ErrorCode::kDataLoss, "node 7: cut"), kFoundNs);
  EXPECT_EQ(Ask(1, kFoundNs - 1).failure.value().age_ns, 0);
}

TEST_F(ObjectScansTest, TheFirstObjectThatIsRefusedDecides) {
  scans_.Refuse(ObjectId(2), Error(ErrorCode::kDataLoss, "2"), kFoundNs);
  scans_.Refuse(ObjectId(3), Error(ErrorCode::kDataLoss, "3"));
  EXPECT_TRUE(Ask(3, kFoundNs).failure.value().is_reported);
  scans_.Refuse(ObjectId(1), Error(ErrorCode::kDataLoss, "1"));
  EXPECT_FALSE(Ask(3, kFoundNs).failure.value().is_reported);
  EXPECT_EQ(scans_.Write().error().message(), "1");
  EXPECT_EQ(scans_.Missing(), std::vector<ObjectId>{ObjectId(0)});
}

TEST_F(ObjectScansTest, AnAttemptFailsByAReportOnlyIfNothingIsMissing) {
  scans_.Refuse(ObjectId(1), Error(ErrorCode::kDataLoss, "node 7: cut"), kFoundNs);
  EXPECT_EQ(scans_.ReportedNs(), std::nullopt) << "object 0 may have failed here";
  scans_.Refuse(ObjectId(0), Error(ErrorCode::kDataLoss, "node 8: cut"), kFoundNs + 1);
  EXPECT_EQ(scans_.ReportedNs(), kFoundNs + 1);
}

}  // namespace
}  // namespace forebay::stage
