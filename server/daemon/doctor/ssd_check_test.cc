// The directory of the SSD tier: space, O_DIRECT, rates, and each error of its file system. Files
// in memory take the place of a file system that is full, or that refuses O_DIRECT; the directory
// itself is a real one.
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/testing/recorded_report.h"
#include "server/io/aligned_buffer.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::daemon {
namespace {

using io::testing::Take;
using io::testing::TempFolder;
using limits::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class DoctorSsdTest : public ::testing::Test {
 protected:
  DoctorSsdTest() {
    paths_.ssd_directory = std::filesystem::path(folder_ / "ssd").lexically_normal();
    config_.ssd_capacity = "8MiB";
    std::filesystem::create_directory(paths_.ssd_directory);
    EXPECT_TRUE(memory_.AddDirectory(paths_.ssd_directory).has_value());
  }
  RecordedReport Check(io::IoBackend& backend) const {
    RecordedReport report;
    CheckSsd(config_, paths_, backend, clock_, report);
    return report;
  }

  TempFolder folder_;
  DaemonPaths paths_;
  Config config_ = DefaultConfig();
  io::MemoryBackend memory_{{.capacity_bytes = 64 * kMiB}};
  io::SteadyClock clock_;
};

TEST_F(DoctorSsdTest, NoTierIsNoFailure) {
  paths_.ssd_directory = "";
  const Finding finding = Check(memory_).only();
  EXPECT_EQ(finding.verdict, Verdict::kOk);
  EXPECT_THAT(finding.text, HasSubstr("no SSD tier"));
}

TEST_F(DoctorSsdTest, SpaceAndRatesOfARealDirectoryAreReportedAndNothingIsLeft) {
  const auto backend = Take(io::ThreadBackend::Create({}));
  for (const bool exists : {true, false}) {
    if (!exists) paths_.ssd_directory = folder_ / "absent/ssd";
    const RecordedReport report = Check(*backend);
    ASSERT_THAT(report.findings, SizeIs(2));
    EXPECT_THAT(report.findings[0].text,
                AllOf(HasSubstr("tier.ssd.capacity is 8 MiB"), HasSubstr("are free")));
    EXPECT_THAT(report.findings[1].text, HasSubstr("written and synced at"));
    EXPECT_GT(report.figure("written_bytes"), 0U);
    EXPECT_LE(report.figure("written_bytes"), 256 * kMiB);
    EXPECT_EQ(report.figure("read_bytes"), report.figure("written_bytes"));
    EXPECT_GT(report.figure("read_bytes_per_s"), 0U);
    const bool is_to_be_created =
        report.findings[0].text.find("which the daemon creates") != std::string::npos;
    EXPECT_NE(is_to_be_created, exists);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "ssd"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "absent"));
}

TEST_F(DoctorSsdTest, HalfOfTheFreeSpaceIsWrittenAtMost) {
  const RecordedReport report = Check(memory_);
  ASSERT_THAT(report.findings, SizeIs(2));
  EXPECT_EQ(report.findings[0].verdict, Verdict::kOk) << report.findings[0].text;
  EXPECT_EQ(report.findings[1].verdict, Verdict::kOk) << report.findings[1].text;
  EXPECT_EQ(report.figure("written_bytes"), 32 * kMiB);
  EXPECT_EQ(report.figure("is_direct"), 1U);
  EXPECT_EQ(memory_.open_file_count(), 0U);
}

TEST_F(DoctorSsdTest, LessSpaceThanTheCapacityIsAWarning) {
  config_.ssd_capacity = "100MiB";
  const Finding finding = Check(memory_).findings.at(0);
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.remedy, AllOf(HasSubstr("free 36 MiB"), HasSubstr("lower")));
}

TEST_F(DoctorSsdTest, SegmentsOfAnEarlierDaemonBelongToTheCapacity) {
  config_.ssd_capacity = "60MiB";
  const auto directory = Take(memory_.OpenDirectory(paths_.ssd_directory));
  const auto queue = Take(memory_.CreateQueue({}));
  const auto store =
      Take(tier::SegmentStore::Open(memory_, *directory, {.capacity_bytes = 60 * kMiB}));
  auto image = Take(io::AlignedBuffer::Create(16 * kMiB));
  const tier::ExtentKey key{.dataset = 1, .extent = ExtentId(3), .identity = 2};
  ASSERT_TRUE(store->Put(*queue, key, image.span(), {}).has_value());
  const RecordedReport report = Check(memory_);
  EXPECT_EQ(report.findings.at(0).verdict, Verdict::kOk) << report.findings[0].text;
  EXPECT_THAT(report.findings[0].text, HasSubstr("the tier has 16"));
  EXPECT_TRUE(store->Contains(key));
}

TEST_F(DoctorSsdTest, ADamagedManifestIsNoFailureBecauseTheDaemonDropsIt) {
  const std::vector<std::byte> zeros(64);
  ASSERT_TRUE(memory_.AddFile(paths_.ssd_directory + "/manifest", zeros).has_value());
  EXPECT_EQ(Check(memory_).findings.at(0).verdict, Verdict::kOk);
}

TEST_F(DoctorSsdTest, AFullFileSystemIsAFailureWithoutARate) {
  memory_.SetCapacity(kMiB);
  const RecordedReport report = Check(memory_);
  ASSERT_THAT(report.findings, SizeIs(2));
  EXPECT_EQ(report.findings[0].verdict, Verdict::kWarning);
  EXPECT_EQ(report.findings[1].verdict, Verdict::kFailure);
  EXPECT_THAT(report.findings[1].text, HasSubstr("only 1 MiB are free"));
  EXPECT_THAT(report.findings[1].remedy, HasSubstr("free space"));
}

TEST_F(DoctorSsdTest, RefusedDirectTransfersAreAWarningWhereTheyAreWanted) {
  io::MemoryBackend buffered({.capacity_bytes = 64 * kMiB, .has_direct = false});
  ASSERT_TRUE(buffered.AddDirectory(paths_.ssd_directory).has_value());
  const RecordedReport report = Check(buffered);
  EXPECT_EQ(report.findings.at(1).verdict, Verdict::kWarning);
  EXPECT_THAT(report.findings[1].text, HasSubstr("refuses O_DIRECT"));
  EXPECT_EQ(report.figure("is_direct"), 0U);
  config_.ssd_direct = false;
  EXPECT_EQ(Check(buffered).findings.at(1).verdict, Verdict::kOk);
}

TEST_F(DoctorSsdTest, EveryErrorIsOneFailureWithItsRemedyAndLeavesNothing) {
  io::FaultInjector faults;
  io::FaultyBackend faulty(memory_, faults);
  memory_.SetCapacity(8 * kMiB);  // few requests, because each of them fails once
  ExpectEveryErrorIsAFailure(faults, 3, [&] { return Check(faulty).findings.back(); });
  EXPECT_EQ(memory_.open_file_count(), 0U);
}

}  // namespace
}  // namespace forebay::daemon
