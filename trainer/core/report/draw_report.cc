// The words of the command are few, so they are parsed here and not by CLI11. The kind of the
// output follows from the extension of its name.
#include "trainer/core/report/draw_report.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/core/metrics/text_file.h"
#include "trainer/core/report/report_page.h"
#include "trainer/core/report/run_record.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportUsage =
    "forebay-train report FOLDER [-o FILE]\n"
    "Draws what a run left in its folder of metrics (--metrics-dir): loss, evaluations, rates,\n"
    "where the time of its ranks went, and memory. FILE ends in .html or .svg; without it the\n"
    "report is FOLDER/report.html.\n"
    "forebay-train report FOLDER FOLDER... -o FILE.svg\n"
    "Draws the evaluations of several runs over the same axes.\n";

// What the command line asks for.
struct Request {
  std::vector<std::string> folders;
  fs::path output;
  bool wants_help = false;
};

// A mistake in the command line, with the usage below it.
Error WrongReport(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("report: {}\n{}", what, kReportUsage));
}

Result<Request> ParseRequest(int argc, const char* const* argv) {
  Request request;
  // argv[1] is the command "report" itself.
  for (int at = 2; at < argc; ++at) {
    const std::string_view word = argv[at];
    if (word == "-h" || word == "--help") {
      request.wants_help = true;
    // Without a word behind it, -o falls through to the refusal below.
    } else if ((word == "-o" || word == "--output") && at + 1 < argc) {
      request.output = argv[++at];
    } else if (!word.starts_with("-")) {
      request.folders.emplace_back(word);
    } else {
      return WrongReport(std::string(word));
    }
  }
  // Before the other checks: who asks for help has often named no folder.
  if (request.wants_help) return request;
  if (request.folders.empty()) return WrongReport("no folder");
  const bool compares = request.folders.size() > 1;
  if (request.output.empty() && !compares) {
    request.output = fs::path(request.folders.front()) / "report.html";
  }
  // A comparison is one drawing, which needs no page around it.
  const fs::path extension = request.output.extension();
  if (extension == ".svg" || (extension == ".html" && !compares)) return request;
  return WrongReport(fmt::format("-o \"{}\": must end in .svg{}", request.output.string(),
                                 compares ? " where there are several folders" : " or .html"));
}

// The folder's own name, which tells runs apart, whether or not a slash stands behind it.
std::string NameOfRun(const std::string& folder) {
  const fs::path path(folder);
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

// Evaluations of all runs in one plot, with the folders' names as the legend.
Result<std::string> Compare(const Request& request) {
  std::vector<NamedRun> runs;
  for (const std::string& folder : request.folders) {
    // A folder that cannot be read ends the command: a comparison that lacks a run would mislead.
    FOREBAY_ASSIGN(RunRecord run, ReadRun(folder));
    runs.push_back({.name = NameOfRun(folder), .run = std::move(run)});
  }
  FOREBAY_TRY(WriteTextFile(request.output, ComparisonSvg(runs)));
  return fmt::format("{}: {} runs\n", request.output.string(), runs.size());
}

}  // namespace

Result<std::string> ReportCommand(int argc, const char* const* argv) {
  FOREBAY_ASSIGN(const Request request, ParseRequest(argc, argv));
  if (request.wants_help) return std::string(kReportUsage);
  if (request.folders.size() > 1) return Compare(request);
  const std::string& folder = request.folders.front();
  FOREBAY_ASSIGN(const RunRecord run, ReadRun(folder));
  // ParseRequest has made sure that it is .html otherwise.
  const bool draws_only = request.output.extension() == ".svg";
  FOREBAY_TRY(WriteTextFile(request.output,
                            draws_only ? ReportSvg(run) : ReportHtml(run, "Run " + folder)));
  return fmt::format("{}: {} steps of {} ranks\n", request.output.string(), run.steps.size(),
                     run.ranks.size());
}

}  // namespace forebay::train
