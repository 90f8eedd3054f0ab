// The report of a run: plots of what its ranks wrote, as one file that needs nothing else.
#pragma once

#include <string>

#include "proto/contract/result.h"
#include "trainer/core/run_record.h"

namespace forebay::train {

// Loss, accuracy, rate, where time went by step and by rank, memory. Curves of many steps are
// means over equally many neighbouring ones.
std::string ReportSvg(const RunRecord& run);

// The same with the closing figures and a table of ranks. `title` is escaped.
std::string ReportHtml(const RunRecord& run, const std::string& title);

// `forebay-train report FOLDER [-o FILE]`: FILE ends in .html (FOLDER/report.html is the default)
// or .svg. argv[1] is "report". Returns a line, or the help text, to print. kInvalidArgument for
// wrong words; else the errors of ReadRun and of writing.
Result<std::string> ReportCommand(int argc, const char* const* argv);

}  // namespace forebay::train
