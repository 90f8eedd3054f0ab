// Check: one thing that a job needs on this node, and the function that tries it. The table of all
// checks is in doctor.h; check_runner.h runs one of them in a process of its own.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/daemon/doctor/finding.h"

namespace forebay::daemon {

// Where a check says what it does and what it finds. For one thread.
class CheckReport {
 public:
  virtual ~CheckReport() = default;

  // Says what is tried from now on ("reading /gfs/train/a.tar"). If the check does not end in time,
  // the user is told the last step.
  virtual void Begin(const std::string& step) = 0;
  // The runner adds the name of the check, and its subject if the finding has none.
  virtual void Add(Finding finding) = 0;

  void Ok(std::string text, std::vector<Figure> figures = {}) {
    Add({.verdict = Verdict::kOk, .text = std::move(text), .figures = std::move(figures)});
  }
  void Warn(std::string text, std::string remedy, std::vector<Figure> figures = {}) {
    Add({.verdict = Verdict::kWarning,
         .text = std::move(text),
         .remedy = std::move(remedy),
         .figures = std::move(figures)});
  }
  void Fail(std::string text, std::string remedy, std::vector<Figure> figures = {}) {
    Add({.verdict = Verdict::kFailure,
         .text = std::move(text),
         .remedy = std::move(remedy),
         .figures = std::move(figures)});
  }
};

struct Check {
  std::string name;
  std::string subject;
  std::string hung_remedy;  // what to do if the check does not end in time
  std::function<void(CheckReport&)> run;
};

}  // namespace forebay::daemon
