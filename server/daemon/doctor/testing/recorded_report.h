// Test support: a report that keeps what a check says, and the rights of an ordinary user.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/daemon/doctor/node_check.h"

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
