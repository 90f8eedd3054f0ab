// Memory, huge pages, open files and io_uring: each verdict, under limits that a child process sets
// itself.
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/daemon/doctor/check_runner.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/testing/recorded_report.h"
#include "server/io/queues/uring_backend.h"
#include "server/io/testing/refused_call_fixture.h"

namespace forebay::daemon {
namespace {

using limits::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class DoctorProcessTest : public ::testing::Test {
 protected:
  DoctorProcessTest() {
    config_.ram_capacity = "64MiB";
    config_.slots_capacity = "8MiB";
    config_.decode_capacity = "8MiB";
  }
  // Runs a check in a process that has this limit.
  Finding Limited(__rlimit_resource resource, rlim_t limit,
                  const std::function<void(CheckReport&)>& check) const {
    std::vector<Finding> findings;
    const auto limited = [&](CheckReport& report) {
      const rlimit small = {limit, limit};
      if (setrlimit(resource, &small) != 0) return report.Ok("no limit was set");
      check(report);
    };
    RunCheck({.name = "limited", .subject = "", .hung_remedy = "", .run = limited}, 60'000,
             [&](const Finding& finding) { findings.push_back(finding); });
    EXPECT_THAT(findings, SizeIs(1));
    return findings.at(0);
  }
  Finding Files(rlim_t limit) const {
    return Limited(RLIMIT_NOFILE, limit,
                   [this](CheckReport& report) { CheckOpenFiles(config_, report); });
  }
  Finding Memory() const {
    RecordedReport report;
    CheckMemory(config_, report);
    return report.only();
  }
  // With io_uring refused, as a site's policy does it.
  Finding WithoutUring(const std::string& backend) {
    config_.io_backend = backend;
    RecordedReport report;
    EXPECT_TRUE(io::testing::RunWithRefusedCall(SYS_io_uring_setup, EPERM,
                                                [&] { CheckIoUring(config_, report); }));
    return report.only();
  }

  Config config_ = DefaultConfig();
};

TEST_F(DoctorProcessTest, MemoryThatFitsIsFine) {
  const Finding finding = Memory();
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr("RAM tier 64 MiB, slots 8 MiB, decoded chunks up to 8 MiB: "
                                      "80 MiB of the "));
}

TEST_F(DoctorProcessTest, MoreThanThisProcessMayUseIsAFailure) {
  config_.ram_capacity = "2TiB";
  const Finding finding = Memory();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("would end processes of the job"));
  EXPECT_THAT(finding.remedy, HasSubstr("lower tier.ram.capacity"));
}

TEST_F(DoctorProcessTest, MoreThanTheAddressSpaceHasIsAFailure) {
  config_.ram_capacity = "1024TiB";
  const Finding finding = Memory();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("shared region"));
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -v"));
}

TEST_F(DoctorProcessTest, ALimitOfTheSizeOfFilesHoldsForSharedMemory) {
  const Finding finding =
      Limited(RLIMIT_FSIZE, kMiB, [this](CheckReport& report) { CheckMemory(config_, report); });
  EXPECT_EQ(finding.verdict, Verdict::kFailure) << finding.text;
  EXPECT_THAT(finding.text, AllOf(HasSubstr("shared region"), HasSubstr("File too large")));
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -f"));
}

TEST_F(DoctorProcessTest, NoLockedMemoryIsNeeded) {
  const Finding finding =
      Limited(RLIMIT_MEMLOCK, 0, [this](CheckReport& report) { CheckMemory(config_, report); });
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text;
}

TEST_F(DoctorProcessTest, HugePagesAreAtMostAWarning) {
  for (const char* use : {"auto", "transparent", "off"}) {
    config_.huge_pages = use;
    RecordedReport report;
    CheckHugePages(config_, report);
    const Finding finding = report.only();
    EXPECT_NE(finding.verdict, Verdict::kFailure) << finding.text;
    EXPECT_EQ(finding.remedy.empty(), finding.verdict == Verdict::kOk);
    if (config_.huge_pages == "off") {
      EXPECT_EQ(finding.text, "daemon.huge_pages is off");
    } else if (config_.huge_pages == "transparent") {
      EXPECT_EQ(report.figure("transparent_bytes") + report.figure("small_bytes"), 8 * kMiB);
    }
  }
}

TEST_F(DoctorProcessTest, OpenFilesThatAreTooFewForOneClientAreAFailure) {
  const Finding finding = Files(100);
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("100 files may be open"));
  EXPECT_THAT(finding.remedy, AllOf(HasSubstr("raised to "), HasSubstr("hard limit is 100")));
}

TEST_F(DoctorProcessTest, OpenFilesThatAreTooFewForAllClientsAreAWarning) {
  const Finding finding = Files(512);
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.text, HasSubstr("clients; 256 clients need "));
}

TEST_F(DoctorProcessTest, AThousandOpenFilesAreEnough) {
  EXPECT_EQ(Files(1024).verdict, Verdict::kOk) << Files(1024).text;
}

TEST_F(DoctorProcessTest, RefusedIoUringMattersAsFarAsItIsWanted) {
  const Finding automatic = WithoutUring("auto");
  EXPECT_EQ(automatic.verdict, Verdict::kWarning);
  EXPECT_THAT(automatic.text, HasSubstr("threads are used"));
  EXPECT_THAT(automatic.remedy, HasSubstr("kernel.io_uring_disabled"));
  const Finding wanted = WithoutUring("io_uring");
  EXPECT_EQ(wanted.verdict, Verdict::kFailure);
  EXPECT_THAT(wanted.remedy, HasSubstr("set daemon.io_backend to auto"));
  EXPECT_EQ(WithoutUring("threads").verdict, Verdict::kOk);
}

TEST_F(DoctorProcessTest, IoUringThatIsAvailableIsFine) {
  if (!io::IsIoUringAvailable()) GTEST_SKIP() << "io_uring is refused on this machine";
  for (const char* backend : {"auto", "io_uring", "threads"}) {
    config_.io_backend = backend;
    RecordedReport report;
    CheckIoUring(config_, report);
    EXPECT_EQ(report.only().verdict, Verdict::kOk);
  }
}

}  // namespace
}  // namespace forebay::daemon
