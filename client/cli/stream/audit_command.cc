// `forebay audit`: who got what, and whether everybody got everything exactly once. DeliveryHistory
// reads the logs and judges them; this command prints its verdicts, one for each stream, and sets
// the exit code. No daemon is asked, so that the proof does not rest on the program that it is
// about.
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

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

JsonObject VerdictJson(const StreamVerdict& verdict) {
  JsonObject json = {{"dataset", verdict.stream.dataset},
               {"stream", verdict.stream.stream},
               {"selection", verdict.stream.selection},
               {"ok", verdict.ok},
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
                                           verdict.stream.selection,
                                           verdict.ok ? "every sample exactly once" : "VIOLATION"))
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
    ok = ok && verdict.ok;
    // People get each verdict at once; programs get one object at the end.
    if (context.json) {
      streams.Add(VerdictJson(verdict));
    } else {
      PrintVerdict(context, verdict);
    }
  }
  // One object for the whole audit, so that a script reads one verdict.
  if (context.json) context.PrintJson("audit", {{"ok", ok}, {"streams", streams}});
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
  command.AddFlag("--complete", arguments->complete, "The last epoch must be whole, too");
  command.SetFooter("Needs no daemon. Where a restart repeats steps, the later one counts. Exit "
                  "code 3: a sample is missing, repeated, or not in the published order.");
  command.OnRun([&context, arguments] { return RunAudit(context, *arguments); });
}

}  // namespace forebay::cli
