// Finding: one result of `forebayd --doctor`, and its two forms: a line for people, and a JSON
// object for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::daemon {

enum class Verdict : std::uint8_t {
  kOk,
  kWarning,  // a daemon serves here, but slower or less than configured
  kFailure,  // a daemon does not start here, or fails later
};
std::string_view VerdictName(Verdict verdict);  // "ok", "warning", "failure"

// A number that was measured. Its name ends with its unit: "read_bytes_per_s".
struct Figure {
  std::string name;
  std::uint64_t value = 0;
};

struct Finding {
  std::string check = {};    // the check's name in the table of checks: "gfs"
  std::string subject = {};  // what was checked: a data set, a directory; may be empty
  Verdict verdict = Verdict::kOk;
  std::string text = {};    // what was measured, or what failed
  std::string remedy = {};  // what to do; empty if the verdict is kOk
  std::vector<Figure> figures = {};
};

// The finding as one line for a terminal, or two if it has a remedy, each with its newline. Control
// characters are escaped.
std::string FindingText(const Finding& finding);
// The finding as a JSON object in ASCII, without a newline, and back. ParseFinding returns nothing
// for other text.
std::string FindingJson(const Finding& finding);
std::optional<Finding> ParseFinding(std::string_view json);

// How many findings there were of each verdict.
struct FindingCounts {
  std::uint64_t ok = 0;
  std::uint64_t warnings = 0;
  std::uint64_t failures = 0;
  void Count(Verdict verdict);
};
// The last line of the output, in the same two forms.
std::string CountsText(const FindingCounts& counts);
std::string CountsJson(const FindingCounts& counts);

// "5.9 GiB", "512 MiB": for texts of findings.
std::string SizeText(std::uint64_t bytes);

}  // namespace forebay::daemon
