// Data sets on the GFS: what is read of each format, and each reason why a data set could not be
// staged from this node.
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/testing/recorded_report.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::daemon {
namespace {

using io::testing::Pattern;
using io::testing::Take;
using io::testing::TempFolder;
using limits::kKiB;
using limits::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Ten seconds later at the second look and ever after: the time for listing is over at once.
class LateClock final : public io::Clock {
 public:
  std::int64_t NowNs() const override { return looks_++ == 0 ? 0 : 10'000'000'000; }

 private:
  mutable int looks_ = 0;
};

class DoctorGfsTest : public ::testing::Test {
 protected:
  DoctorGfsTest() {
    dataset_.source.name = "train";
    dataset_.root_path = "/gfs";
    EXPECT_TRUE(memory_.AddDirectory("/gfs").has_value());
  }
  void AddFile(const std::string& name, std::uint64_t bytes) {
    EXPECT_TRUE(memory_.AddFile("/gfs/" + name, Pattern(bytes)).has_value());
  }
  void UseRecords() {
    AddFile("x.bin", 40 * kMiB);
    dataset_.source.format = catalog::Format::kRaw;
    dataset_.source.settings.SetTexts("files", {"x=x.bin"});
    dataset_.source.settings.SetNumbers("shape", {4096});
  }
  RecordedReport Check(io::IoBackend& backend, const io::Clock& clock) const {
    RecordedReport report;
    CheckGfs(config_, dataset_, backend, clock, report);
    return report;
  }
  Finding Check() { return Check(memory_, clock_).only(); }

  Config config_ = DefaultConfig();
  stage::DatasetOptions dataset_;
  io::MemoryBackend memory_;
  io::SteadyClock clock_;
};

TEST_F(DoctorGfsTest, AtMost32MiBOfALargeObjectAreRead) {
  UseRecords();
  const RecordedReport report = Check(memory_, clock_);
  EXPECT_EQ(report.only().verdict, Verdict::kOk) << report.only().text;
  EXPECT_THAT(report.only().text, HasSubstr("/gfs: format raw, 1 objects; 32 MiB read at "));
  EXPECT_EQ(report.figure("read_bytes"), 32 * kMiB);
  EXPECT_GT(report.figure("read_bytes_per_s"), 0U);
  EXPECT_EQ(memory_.open_file_count(), 0U);
}

TEST_F(DoctorGfsTest, AtMost64SmallObjectsAreRead) {
  for (int i = 0; i < 100; ++i) AddFile("cats/" + std::to_string(i) + ".jpg", 10 * kKiB);
  dataset_.source.format = catalog::Format::kImageFolder;
  const RecordedReport report = Check(memory_, clock_);
  EXPECT_EQ(report.only().verdict, Verdict::kOk) << report.only().text;
  EXPECT_EQ(report.figure("objects"), 100U);
  EXPECT_EQ(report.figure("read_bytes"), 64 * 10 * kKiB);
}

TEST_F(DoctorGfsTest, TheFormatIsDetectedAndShardsAreReadWithoutAPass) {
  AddFile("a.tar", kMiB);
  AddFile("b.tar", kMiB);
  const Finding finding = Check();
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr("format tar, 2 objects; 2 MiB read"));
}

TEST_F(DoctorGfsTest, APathThatIsNotThereIsAFailure) {
  dataset_.root_path = "/elsewhere";
  const Finding finding = Check();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("/elsewhere"));
  EXPECT_THAT(finding.remedy, HasSubstr("mount the file system"));
}

TEST_F(DoctorGfsTest, AFormatThatFitsNothingIsAFailure) {
  AddFile("readme.txt", 10);
  const Finding finding = Check();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.remedy, HasSubstr("correct the table [[dataset]] of 'train'"));
}

TEST_F(DoctorGfsTest, AHeaderThatIsWrongIsAFailure) {
  AddFile("x.npy", kMiB);
  dataset_.source.format = catalog::Format::kNpy;
  const Finding finding = Check();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("x.npy"));
}

TEST_F(DoctorGfsTest, ADataSetWithoutBytesIsNotFine) {
  AddFile("a.tar", 0);
  const Finding finding = Check();
  EXPECT_NE(finding.verdict, Verdict::kOk);
  EXPECT_NE(finding.remedy, "");
}

TEST_F(DoctorGfsTest, TheFirstFilesAreReadWhereThereIsNoTimeToListAll) {
  AddFile("a.tar", kMiB);
  dataset_.source.format = catalog::Format::kTar;
  const LateClock late;
  const Finding finding = Check(memory_, late).only();
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr("more than 1 objects; 1 MiB read"));
}

TEST_F(DoctorGfsTest, NoFileInTheTimeIsAWarning) {
  AddFile("deep/a.tar", kMiB);
  dataset_.source.format = catalog::Format::kTar;
  const LateClock late;
  const Finding finding = Check(memory_, late).only();
  EXPECT_EQ(finding.verdict, Verdict::kWarning) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr("no file was found"));
}

TEST_F(DoctorGfsTest, EveryErrorIsAFailureThatPointsAtTheMount) {
  UseRecords();
  io::FaultInjector faults;
  io::FaultyBackend faulty(memory_, faults);
  for (const io::FaultKind kind : {io::FaultKind::kEio, io::FaultKind::kStale}) {
    std::uint64_t failures = 0;
    for (std::uint64_t nth = 1;; ++nth) {
      faults.Arm({.kind = kind, .nth = nth});
      const std::uint64_t before = faults.faults_injected();
      const Finding finding = Check(faulty, clock_).only();
      faults.Disarm();
      if (faults.faults_injected() == before) break;
      ++failures;
      EXPECT_EQ(finding.verdict, Verdict::kFailure) << finding.text;
      EXPECT_THAT(finding.text, HasSubstr("injected fault"));
      EXPECT_THAT(finding.remedy, HasSubstr("the mount of /gfs"));
    }
    EXPECT_GE(failures, 8U) << "each of the reads, and what is before them";
  }
}

TEST_F(DoctorGfsTest, FilesWithoutTheRightToReadAreAFailure) {
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  std::ofstream(folder / "a.tar") << "x";
  ASSERT_EQ(chmod((folder / "a.tar").c_str(), 0), 0);
  dataset_.root_path = folder.path();
  const auto backend = Take(io::ThreadBackend::Create({}));
  const OrdinaryUser user;
  const Finding finding = Check(*backend, clock_).only();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("a.tar"), HasSubstr("Permission denied")));
  EXPECT_THAT(finding.remedy, HasSubstr("the right to read"));
}

TEST_F(DoctorGfsTest, ALinkThatLeadsOutOfTheRootIsAFailure) {
  const TempFolder folder, other;
  std::ofstream(other / "a.tar") << "x";
  std::filesystem::create_symlink(other / "a.tar", folder / "a.tar");
  dataset_.root_path = folder.path();
  const auto backend = Take(io::ThreadBackend::Create({}));
  const Finding finding = Check(*backend, clock_).only();
  EXPECT_EQ(finding.verdict, Verdict::kFailure) << finding.text;
}

}  // namespace
}  // namespace forebay::daemon
