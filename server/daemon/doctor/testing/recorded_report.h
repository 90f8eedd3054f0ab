// Test support: a report that keeps what a check says, a sweep of errors, and the rights of an
// ordinary user.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/daemon/doctor/node_check.h"
#include "server/io/testing/faulty_backend.h"

namespace forebay::daemon {

class RecordedReport final : public CheckReport {
 public:
  void Begin(const std::string& step) override { steps.push_back(step); }
  void Add(Finding finding) override { findings.push_back(std::move(finding)); }

  // The only finding.
  Finding only() const {
    EXPECT_EQ(findings.size(), 1U);
    return findings.empty() ? Finding() : findings.front();
  }
  // The value of a figure of the last finding; all ones if it has no such figure.
  std::uint64_t figure(const std::string& name) const {
    if (!findings.empty()) {
      for (const Figure& figure : findings.back().figures) {
        if (figure.name == name) return figure.value;
      }
    }
    return ~std::uint64_t{0};
  }

  std::vector<std::string> steps;
  std::vector<Finding> findings;
};

// Lets each operation of `run` fail once, with each of these errors, and expects the last finding
// to be a failure with the remedy for it. `failures_min`: at least so many operations of an error
// are such failures. `run` must use the back end of `faults`.
inline void ExpectEveryErrorIsAFailure(io::FaultInjector& faults, std::uint64_t failures_min,
                                       const std::function<Finding()>& run) {
  for (const auto& [kind, remedy] :
       {std::pair(io::FaultKind::kEio, "kernel's log"), {io::FaultKind::kEnospc, "free space"},
        {io::FaultKind::kErofs, "for writing"}}) {
    std::uint64_t failures = 0;
    for (std::uint64_t nth = 1;; ++nth) {
      faults.Arm({.kind = kind, .nth = nth});
      const std::uint64_t before = faults.faults_injected();
      const Finding finding = run();
      faults.Disarm();
      // The run has fewer operations than `nth`.
      if (faults.faults_injected() == before) break;
      // The removal of a leftover, before anything is created, may fail.
      if (finding.verdict == Verdict::kOk) continue;
      ++failures;
      EXPECT_EQ(finding.verdict, Verdict::kFailure) << finding.text;
      EXPECT_THAT(finding.remedy, ::testing::HasSubstr(remedy)) << finding.text;
    }
    EXPECT_GE(failures, failures_min);
  }
}

// Root may read and write everything, so where root runs a test, this gives it the effective rights
// of another user while it exists.
class OrdinaryUser {
 public:
  OrdinaryUser() : before_(geteuid()) {
    constexpr uid_t kNobody = 65534;
    const uid_t user = before_ == 0 ? kNobody : before_;
    EXPECT_EQ(seteuid(user), 0);
  }
  ~OrdinaryUser() { EXPECT_EQ(seteuid(before_), 0); }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  const uid_t before_;
};

}  // namespace forebay::daemon
