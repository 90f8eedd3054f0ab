// `forebay audit`: who got what, and whether everybody got everything exactly once. DeliveryHistory
// reads the logs and judges them; this command prints its verdicts, one for each stream, and sets
// the exit code. No daemon is asked, so that the proof does not rest on the program that it is
// about.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/human_text.h"
#include "client/cli/stream/delivery_history.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

struct AuditArguments {
  std::vector<std::string> logs;
  bool complete = false;
};

bool IsOk(const StreamVerdict& verdict) {
  return verdict.outcome == Outcome::kWhole || verdict.outcome == Outcome::kUnfinished;
}

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kWhole: return "whole";
    case Outcome::kUnfinished: return "unfinished";
    case Outcome::kUndecided: return "undecided";
    case Outcome::kViolation: break;
  }
  return "violation";
}

// The epochs from `first` to the one before `end`; the verb is that of one, or of several.
std::string EpochsInWords(std::uint64_t first, std::uint64_t end, const char* of_one = "",
                          const char* of_several = "") {
  return end - first == 1 ? fmt::format("epoch {}{}", first, of_one)
                          : fmt::format("epochs {} to {}{}", first, end - 1, of_several);
}

// Claims no more than the logs prove.
std::string InWords(const StreamVerdict& verdict) {
  if (verdict.outcome == Outcome::kViolation) return "VIOLATION";
  if (verdict.outcome == Outcome::kUndecided) return "UNDECIDED";
  const std::uint64_t first = verdict.epochs.front().epoch;
  // Only the last of the epochs that were judged can be unfinished.
  const EpochVerdict& last = verdict.epochs.back();
  const std::uint64_t whole_end = last.unfinished == 0 ? last.epoch + 1 : last.epoch;
  const bool is_unfinished = last.unfinished != 0 && last.consumed != 0;
  const std::uint64_t begun_end = is_unfinished ? last.epoch + 1 : whole_end;
  std::vector<std::string> parts;
  if (whole_end > first) {
    parts.push_back("every sample exactly once in " + EpochsInWords(first, whole_end));
  }
  if (is_unfinished) {
    parts.push_back(fmt::format("epoch {} is unfinished: {} of {} samples were not seen",
                                last.epoch, last.unfinished, last.expected));
  }
  const std::uint64_t end = std::max(verdict.end_epoch, last.epoch + 1);
  if (end > begun_end) {
    parts.push_back(EpochsInWords(begun_end, end, " has not begun", " have not begun"));
  }
  return fmt::format("{}{}", fmt::join(parts, "; "),
                     verdict.rests_on_clocks     ? ", by the clocks of the nodes"
                     : verdict.rests_on_all_logs ? ", if no log is missing"
                                                 : "");
}

JsonObject VerdictJson(const StreamVerdict& verdict) {
  JsonObject json = {{"dataset", verdict.stream.dataset},
               {"stream", verdict.stream.stream},
               {"selection", verdict.stream.selection},
               {"ok", IsOk(verdict)},
               {"outcome", NameOf(verdict.outcome)},
               {"rests_on_clocks", verdict.rests_on_clocks},
               {"rests_on_all_logs", verdict.rests_on_all_logs},
               {"end_epoch", verdict.end_epoch},
               {"openings", verdict.openings},
               {"superseded_batches", verdict.superseded},
               {"wrong_ids", verdict.wrong_ids},
               {"findings", verdict.findings}};
  // An array and not members named by epochs, so that a script can go through it in order.
  JsonArray epochs;
  for (const EpochVerdict& epoch : verdict.epochs) {
    epochs.Add(JsonObject({{"epoch", epoch.epoch},
                              {"expected", epoch.expected},
                              {"consumed", epoch.consumed},
                              {"missing", epoch.missing},
                              {"duplicates", epoch.duplicates},
                              {"unfinished", epoch.unfinished},
                              {"findings", epoch.findings}}));
  }
  json.Add("epochs", epochs);
  return json;
}

void PrintVerdict(CommandContext& context, const StreamVerdict& verdict) {
  // Names come from the logs, which anybody may have written.
  context.out << PrintableLine(fmt::format("stream '{}' of '{}' (selection '{}'): {}",
                                           verdict.stream.stream, verdict.stream.dataset,
                                           verdict.stream.selection, InWords(verdict)))
              << '\n';
  TextTable table({"EPOCH", "EXPECTED", "CONSUMED", "MISSING", "DUPLICATES", "UNFINISHED"});
  for (const EpochVerdict& epoch : verdict.epochs) {
    table.Add({std::to_string(epoch.epoch), HumanCount(epoch.expected),
               HumanCount(epoch.consumed), HumanCount(epoch.missing),
               HumanCount(epoch.duplicates), HumanCount(epoch.unfinished)});
  }
  context.out << table.ToString();
  context.out << fmt::format(
      "{} openings, {} batches taken back by restores, {} samples that the order does not have "
      "there\n",
      verdict.openings, HumanCount(verdict.superseded), HumanCount(verdict.wrong_ids));
  // Findings name files and positions. There are a few of each kind at most; the table has the
  // counts.
  for (const std::string& finding : verdict.findings) {
    context.out << "  " << PrintableLine(finding) << '\n';
  }
  for (const EpochVerdict& epoch : verdict.epochs) {
    for (const std::string& finding : epoch.findings) {
      context.out << fmt::format("  epoch {}: {}\n", epoch.epoch, PrintableLine(finding));
    }
  }
}

Status RunAudit(CommandContext& context, const AuditArguments& arguments) {
  DeliveryHistory history;
  // All logs are read before any is judged: a restart's log takes back what an earlier one has.
  for (const std::string& path : arguments.logs) {
    std::ifstream log(path);
    // A log that is left out would make its samples look lost, so one that cannot be read ends the
    // audit.
    if (!log) return Error(ErrorCode::kNotFound, "cannot read the delivery log " + path);
    FOREBAY_TRY(history.Read(path, log));
  }
  const std::vector<StreamVerdict> verdicts = history.Judge(arguments.complete);
  bool ok = true;
  JsonArray streams;
  for (const StreamVerdict& verdict : verdicts) {
    ok = ok && IsOk(verdict);
    // People get each verdict at once; programs get one object at the end.
    if (context.json) {
      streams.Add(VerdictJson(verdict));
    } else {
      PrintVerdict(context, verdict);
    }
  }
  // Something was opened there, and nothing says what it took back, or whether it was delivered.
  JsonArray without_header;
  for (const std::string& log : history.logs_ending_in_header()) {
    ok = ok && !arguments.complete;
    without_header.Add(log);
    if (!context.json) {
      context.out << PrintableLine(fmt::format(
                         "{}: ends within a header: that opening delivered nothing, and its "
                         "stream and rank are not known",
                         log))
                  << '\n';
    }
  }
  // One object for the whole audit, so that a script reads one verdict.
  if (context.json) {
    context.PrintJson("audit", {{"ok", ok},
                                {"streams", streams},
                                {"logs_without_header", without_header}});
  }
  // Not an error: the audit itself has done what was asked.
  if (!ok) context.exit_code = ExitCode::kViolation;
  return {};
}

}  // namespace

void AddAudit(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "audit", "Prove from delivery logs that every sample was consumed exactly once per epoch.");
  auto arguments = std::make_shared<AuditArguments>();
  command.AddOption("LOGS", arguments->logs, "Delivery logs of all ranks and restarts")
      .Required()
      .ValueName("FILE");
  command.AddFlag("--complete", arguments->complete,
                  "All epochs must be whole, the last one, too, and no log ends within a header");
  command.SetFooter("Needs no daemon. Where a restart repeats steps, the later one counts. Without "
                  "--complete, an epoch may be unfinished, and the verdict names it. Where only "
                  "the clocks of the nodes tell the order of restarts, the verdict says so, and "
                  "where clocks say that a log is missing, which one it is. Exit code 3 means that "
                  "a sample is missing, repeated, or not in the published order (VIOLATION), that "
                  "only clocks say so, that a log seems to be missing, or that the logs begin "
                  "where the stream ends (UNDECIDED).");
  command.OnRun([&context, arguments] { return RunAudit(context, *arguments); });
}

}  // namespace forebay::cli
