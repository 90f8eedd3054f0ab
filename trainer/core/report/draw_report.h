// The command `forebay-train report`.
#pragma once

#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

// `forebay-train report FOLDER... [-o FILE]`: FILE ends in .html (FOLDER/report.html is the
// default) or .svg; of several folders, whose evaluations are compared, it is given and ends in
// .svg. argv[1] is "report". Returns a line, or the help text, to print. kInvalidArgument for
// wrong words; else the errors of ReadRun and of writing.
Result<std::string> ReportCommand(int argc, const char* const* argv);

}  // namespace forebay::train
