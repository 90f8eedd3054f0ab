// What `forebayd --check` reports about the space on the tiers, also if a file system does not
// answer or the time is used up.
#include "server/daemon/config/capacity_survey.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::daemon {
namespace {

using io::testing::Pattern;
using limits::kMiB;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CapacitySurveyTest : public ::testing::Test {
 protected:
  CapacitySurveyTest() {
    config_.ram_capacity = "8MiB";
    EXPECT_TRUE(memory_.AddDirectory("/").has_value());
  }
  // A data set of records in 1 MiB extents.
  void AddRecords(const std::string& name, std::uint64_t mib) {
    EXPECT_TRUE(memory_.AddFile("/" + name + "/x.bin", Pattern(mib * kMiB)).has_value());
    stage::DatasetOptions& options = config_.datasets.emplace_back();
    options.source.name = name;
    options.source.format = catalog::Format::kRaw;
    options.source.settings.SetTexts("files", {"x=x.bin"});
    options.source.settings.SetNumbers("shape", {4096});
    options.source.extent_bytes = kMiB;
    options.root_path = "/" + name;
  }
  CapacityText Survey(std::int64_t patience_ms = 10'000) {
    CapacitySurvey survey(config_, memory_, clock_, patience_ms);
    EXPECT_TRUE(survey.Await());
    return Describe(survey.Report());
  }

  Config config_ = DefaultConfig();
  io::MemoryBackend memory_;
  io::ManualClock clock_;
};

TEST_F(CapacitySurveyTest, SaysThatTheTiersHoldTheDataSets) {
  AddRecords("train", 5);
  AddRecords("val", 2);
  const CapacityText text = Survey();
  EXPECT_THAT(text.warnings, IsEmpty());
  EXPECT_THAT(text.facts,
              ElementsAre("data set 'train': 5242880 bytes (5.0 MiB), 1 objects of format raw",
                          "data set 'val': 2097152 bytes (2.0 MiB), 1 objects of format raw",
                          "tiers: RAM 8 MiB, 7 MiB of it for extents; no SSD",
                          "the tiers hold all data sets: order 'global' works, and the GFS is "
                          "read once"));
}

TEST_F(CapacitySurveyTest, DataSetsShareTheTiersAndTheOneThatDoesNotFitIsNamed) {
  AddRecords("train", 5);
  AddRecords("val", 4);
  const CapacityText text = Survey();
  ASSERT_THAT(text.warnings, SizeIs(3));
  EXPECT_EQ(text.warnings[0],
            "the tiers do not hold the data sets: 2097152 bytes (2.0 MiB) of 9437184 bytes "
            "(9.0 MiB) fit on none (data set val)");
  EXPECT_THAT(text.warnings[1], HasSubstr("order 'global' is refused"));
  EXPECT_EQ(text.warnings[2],
            "set tier.ram.capacity to 10 MiB (now 8 MiB), or tier.ssd.capacity to 4 MiB (there is "
            "none now: set tier.ssd.directory too)");
}

TEST_F(CapacitySurveyTest, AnSsdTierCountsAlsoBeforeItsDirectoryIsThere) {
  AddRecords("train", 12);
  config_.ssd_directory = "/absent/ssd";
  config_.ssd_capacity = "16MiB";
  const CapacityText text = Survey();
  EXPECT_THAT(text.warnings, IsEmpty());
  EXPECT_THAT(text.facts[1], "tiers: RAM 8 MiB, 6 MiB of it for extents; SSD 16 MiB, 15 MiB of it "
                             "for extents");
}

TEST_F(CapacitySurveyTest, WhatCannotBeLookedAtIsSaidAndDoesNotHideTheRest) {
  AddRecords("gone", 1);
  config_.datasets.back().root_path = "/elsewhere";
  AddRecords("train", 9);
  const CapacityText text = Survey();
  EXPECT_THAT(text.facts[0], AllOf(HasSubstr("data set 'gone': size not known: "),
                                   HasSubstr("/elsewhere")));
  ASSERT_THAT(text.warnings, SizeIs(4));
  EXPECT_THAT(text.warnings[0], HasSubstr("fit on none (data set train)"));
  EXPECT_THAT(text.warnings[2], HasSubstr(", and more for data sets of unknown size"));
  EXPECT_EQ(text.warnings[3], "whether the tiers hold these data sets is not known: gone");
}

TEST_F(CapacitySurveyTest, ATierOfUnknownCapacityIsSaid) {
  AddRecords("train", 1);
  config_.ram_capacity = "lots";
  const CapacityText text = Survey();
  EXPECT_THAT(text.facts, SizeIs(1));
  EXPECT_THAT(text.warnings, ElementsAre(AllOf(HasSubstr("tiers hold the data sets is not known"),
                                               HasSubstr("tier.ram.capacity"))));
}

TEST_F(CapacitySurveyTest, NothingIsLookedAtBeyondThePatience) {
  AddRecords("train", 1);
  const CapacityText text = Survey(0);
  EXPECT_THAT(text.facts[0], HasSubstr("size not known: 0 files were looked at within 0 s"));
  EXPECT_THAT(text.warnings,
              ElementsAre("whether the tiers hold these data sets is not known: train"));
}

TEST_F(CapacitySurveyTest, WhatIsAtMostIsNotCalledCertain) {
  CapacityReport report;
  report.tiers->ram.capacity_bytes = 8 * kMiB;
  stage::DatasetSize size;
  size.format = catalog::Format::kTar;
  size.objects = 2;
  size.bytes = 9 * kMiB;
  size.is_at_most = true;
  size.extents.assign(9, stage::FootprintOf(kMiB, 1));
  size.image_bytes.assign(9, kMiB);
  report.datasets.push_back({.name = "shards", .size = size});
  const CapacityText text = Describe(report);
  EXPECT_EQ(text.facts[0],
            "data set 'shards': at most 9437184 bytes (9.0 MiB), 2 objects of format tar; its "
            "exact size is known once it has been staged");
  EXPECT_THAT(text.warnings[0], AllOf(HasSubstr("the tiers may not hold the data sets: up to "),
                                      HasSubstr("2097152 bytes (2.0 MiB)")));
}

}  // namespace
}  // namespace forebay::daemon
