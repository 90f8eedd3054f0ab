// One check in a process of its own: what it finds arrives, and it ends whatever it does.
#include "server/daemon/doctor/check_runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/daemon/doctor/doctor.h"
#include "server/io/testing/manual_clock.h"

namespace forebay::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kPatienceMs = 60'000;

Check CheckOf(std::function<void(CheckReport&)> run) {
  return {.name = "trial", .subject = "it", .hung_remedy = "wait", .run = std::move(run)};
}

std::vector<Finding> FindingsOf(const Check& check, std::int64_t patience_ms = kPatienceMs) {
  std::vector<Finding> findings;
  RunCheck(check, patience_ms, [&](const Finding& finding) { findings.push_back(finding); });
  // Every child was waited for.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  return findings;
}

TEST(CheckRunnerTest, FindingsArriveInTheirOrderWithTheNameOfTheCheck) {
  const auto findings = FindingsOf(CheckOf([](CheckReport& report) {
    report.Begin("the first step\nwith a line end");
    report.Ok("fine", {{"bytes", 7}});
    Finding own{.subject = "a part", .verdict = Verdict::kWarning};
    own.text = "not so fine";
    report.Add(own);
  }));
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(FindingText(findings[0]), "ok       trial       it: fine\n");
  ASSERT_THAT(findings[0].figures, SizeIs(1));
  EXPECT_EQ(findings[0].figures[0].value, 7U);
  EXPECT_EQ(FindingText(findings[1]), "warning  trial       a part: not so fine\n");
}

TEST(CheckRunnerTest, ALongFindingArrivesWhole) {
  const std::string text(1 << 20, 'x');
  const auto findings = FindingsOf(CheckOf([&](CheckReport& report) { report.Ok(text); }));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].text, text);
}

TEST(CheckRunnerTest, ACheckThatDoesNotEndIsAFailureThatNamesItsStep) {
  const auto findings = FindingsOf(CheckOf([](CheckReport& report) {
                              report.Ok("known before");
                              report.Begin("reading /gfs/a");
                              for (;;) pause();
                            }),
                            /*patience_ms=*/300);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].text, "known before");
  EXPECT_EQ(findings[1].verdict, Verdict::kFailure);
  EXPECT_EQ(findings[1].text, "no answer within 0.3 s while reading /gfs/a");
  EXPECT_EQ(findings[1].remedy, "wait");
}

TEST(CheckRunnerTest, ACheckThatIsKilledIsAFailure) {
  const auto killed = FindingsOf(CheckOf([](CheckReport& report) {
    report.Begin("filling memory");
    raise(SIGKILL);
  }));
  ASSERT_THAT(killed, SizeIs(1));
  EXPECT_EQ(killed[0].verdict, Verdict::kFailure);
  EXPECT_THAT(killed[0].text, AllOf(HasSubstr("signal 9"), HasSubstr("while filling memory")));
  EXPECT_THAT(killed[0].remedy, HasSubstr("memory"));
  const auto other = FindingsOf(CheckOf([](CheckReport& report) {
    report.Ok("before");
    signal(SIGBUS, SIG_DFL);
    raise(SIGBUS);
  }));
  ASSERT_THAT(other, SizeIs(2));
  EXPECT_THAT(other[1].text, HasSubstr("signal 7"));
  EXPECT_THAT(other[1].remedy, HasSubstr("report this"));
}

TEST(CheckRunnerTest, ACheckThatSaysNothingIsAFailure) {
  EXPECT_THAT(FindingsOf(CheckOf([](CheckReport&) {})).at(0).text, HasSubstr("without a result"));
  const auto failed = FindingsOf(CheckOf([](CheckReport& report) {
    report.Ok("before");
    _exit(3);
  }));
  ASSERT_THAT(failed, SizeIs(2));
  EXPECT_EQ(failed[1].verdict, Verdict::kFailure);
}

TEST(CheckRunnerTest, WhatACheckPrintsDoesNotReachTheOutput) {
  ::testing::internal::CaptureStdout();
  const auto findings = FindingsOf(CheckOf([](CheckReport& report) {
    const ssize_t written = write(STDOUT_FILENO, "noise\n", 6);
    report.Ok(written == 6 ? "written" : "refused");
  }));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(findings.at(0).text, "written");
}

TEST(CheckRunnerTest, DoctorRunsTheChecksInTheirOrderAndCounts) {
  const std::vector<Check> checks = {
      CheckOf([](CheckReport& report) { report.Ok("a"); }),
      CheckOf([](CheckReport& report) { report.Warn("b", "r"); }),
      CheckOf([](CheckReport& report) { report.Fail("c", "r"); })};
  std::string order;
  const io::ManualClock clock;
  const FindingCounts counts = ExamineNode(checks, clock, {}, [&](const Finding& finding) {
    order += finding.text;
  });
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(counts.ok, 1U);
  EXPECT_EQ(counts.warnings, 1U);
  EXPECT_EQ(counts.failures, 1U);
}

TEST(CheckRunnerTest, DoctorBeginsNoCheckOnceTheTimeIsOver) {
  io::ManualClock clock;
  const std::vector<Check> checks = {
      CheckOf([](CheckReport& report) { report.Ok("first"); }),
      CheckOf([](CheckReport& report) { report.Ok("second"); })};
  std::vector<Finding> findings;
  const DoctorPatience patience = {.total_ms = 60'000};
  ExamineNode(checks, clock, patience, [&](const Finding& finding) {
    findings.push_back(finding);
    clock.AdvanceNs(patience.total_ms * 1'000'000);
  });
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].text, "first");
  EXPECT_EQ(findings[1].verdict, Verdict::kWarning);
  EXPECT_EQ(findings[1].text, "not tried, because 60 s were over");
}

}  // namespace
}  // namespace forebay::daemon
