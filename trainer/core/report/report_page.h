// The report of a run: plots of what its ranks wrote, as one file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "trainer/core/report/run_record.h"

namespace forebay::train {

// Loss, accuracy, rate, where time went by step and by rank, memory. Curves of many steps are
// means over equally many neighbouring ones.
std::string ReportSvg(const RunRecord& run);

// The same with the closing figures and a table of ranks. `title` is escaped.
std::string ReportHtml(const RunRecord& run, const std::string& title);

struct NamedRun {
  std::string name;
  RunRecord run;
};

// Evaluations of several runs over the same axes: what they were judged by, and their loss.
std::string ComparisonSvg(const std::vector<NamedRun>& runs);

}  // namespace forebay::train
