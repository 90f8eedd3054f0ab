// The JSON objects are those of schema forebay.doctor.v1 (docs/cli.md). Findings of a check reach
// the main process in the same form, so there is one writer and one reader.
#include "server/daemon/doctor/finding.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "proto/contract/printable.h"

namespace forebay::daemon {
namespace {

using Json = nlohmann::ordered_json;

// By the values of Verdict. They are part of the schema.
constexpr std::array<std::string_view, 3> kVerdictNames = {"ok", "warning", "failure"};
constexpr const char* kSchema = "forebay.doctor.v1";

std::string Dump(const Json& json) {
  // Names of files may be no UTF-8, and ASCII passes every terminal and pipe.
  constexpr bool kAscii = true;
  return json.dump(-1, ' ', kAscii, Json::error_handler_t::replace);
}

// The member `name` if it is a text, else "".
std::string TextOf(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  return kVerdictNames[static_cast<std::size_t>(verdict)];
}

std::string FindingText(const Finding& finding) {
  const std::string subject = finding.subject.empty() ? "" : finding.subject + ": ";
  std::string text = fmt::format("{:8} {:11} {}\n", VerdictName(finding.verdict), finding.check,
                                 PrintableLine(subject + finding.text));
  if (!finding.remedy.empty()) {
    // Indented to where the text of the line above begins.
    text += fmt::format("{:21}remedy: {}\n", "", PrintableLine(finding.remedy));
  }
  return text;
}

std::string FindingJson(const Finding& finding) {
  Json figures = Json::object();
  for (const Figure& figure : finding.figures) figures[figure.name] = figure.value;
  return Dump({{"schema", kSchema},
               {"event", "finding"},
               {"check", finding.check},
               {"subject", finding.subject},
               {"verdict", VerdictName(finding.verdict)},
               {"text", finding.text},
               {"remedy", finding.remedy},
               {"figures", figures}});
}

// Reads only what FindingJson writes. A check that was killed may have written a part of a line,
// which is no finding.
std::optional<Finding> ParseFinding(std::string_view json) {
  constexpr bool kThrows = false;
  const Json parsed = Json::parse(json, nullptr, kThrows);
  if (!parsed.is_object() || TextOf(parsed, "event") != "finding") return std::nullopt;
  Finding finding;
  finding.check = TextOf(parsed, "check");
  finding.subject = TextOf(parsed, "subject");
  finding.text = TextOf(parsed, "text");
  finding.remedy = TextOf(parsed, "remedy");
  const std::string verdict = TextOf(parsed, "verdict");
  for (std::size_t i = 0; i < kVerdictNames.size(); ++i) {
    if (verdict == kVerdictNames[i]) finding.verdict = static_cast<Verdict>(i);
  }
  const auto figures = parsed.find("figures");
  if (figures == parsed.end()) return finding;
  for (const auto& [name, value] : figures->items()) {
    // Figures are counts of bytes and things, and never negative.
    if (!value.is_number_unsigned()) continue;
    finding.figures.push_back({.name = name, .value = value.get<std::uint64_t>()});
  }
  return finding;
}

void FindingCounts::Count(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: ++ok; break;
    case Verdict::kWarning: ++warnings; break;
    case Verdict::kFailure: ++failures; break;
  }
}

std::string CountsText(const FindingCounts& counts) {
  return fmt::format("doctor: {} ok, {} with a warning, {} failed\n", counts.ok, counts.warnings,
                     counts.failures);
}

std::string CountsJson(const FindingCounts& counts) {
  return Dump({{"schema", kSchema},
               {"event", "done"},
               {"ok", counts.ok},
               {"warnings", counts.warnings},
               {"failures", counts.failures}});
}

std::string SizeText(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (size >= 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  // One digit behind the point, but none for whole numbers: "512 MiB".
  const bool is_whole = size >= 100 || size == static_cast<double>(static_cast<int>(size));
  return fmt::format("{:.{}f} {}", size, is_whole ? 0 : 1, kUnits[unit]);
}

}  // namespace forebay::daemon
