// `forebay verify`, `evict` and `drain`: upkeep of a daemon; `verify` also of pack files. The
// daemon verifies its own tiers and reports progress, which is printed as it comes. Names that look
// like paths are verified here without a daemon (pack_verify.cc).
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/human_text.h"
#include "client/cli/inspect/pack_verify.h"
#include "client/cli/printable_stream.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

// Each event is printed at once: a script can tell a long verification from one that hangs.
void PrintVerifyEvent(CommandContext& context, const VerifyEvent& event) {
  context.PrintJson("verify", {{"event", event.done ? "done" : "progress"},
                               {"extents_total", event.extents_total},
                               {"extents_done", event.extents_done},
                               {"bytes_done", event.bytes_done},
                               {"extents_bad", event.extents_bad},
                               {"errors", event.errors}});
}

void ShowVerifyEvent(CommandContext& context, const VerifyEvent& event) {
  for (const std::string& error : event.errors) context.err << PrintableLine(error) << '\n';
  // A log file would get a line for each message, so progress is for terminals only.
  if (!context.terminal) return;
  context.out << EraseLine
              << fmt::format("verifying: {} of {} extents, {}", HumanCount(event.extents_done),
                             HumanCount(event.extents_total), HumanBytes(event.bytes_done))
              << std::flush;
}

Status RunVerify(CommandContext& context, const std::vector<std::string>& names) {
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  VerifyEvent last;
  // The largest count of all messages and not the last one, so that damage that was once reported
  // is never taken back.
  std::uint64_t bad = 0;
  const Status verified = link.Verify(names, [&](const VerifyEvent& event) {
    bad = std::max(bad, event.extents_bad);
    last = event;
    if (context.json) {
      PrintVerifyEvent(context, event);
    } else {
      ShowVerifyEvent(context, event);
    }
  });
  // The progress line is erased before an error, too, which would otherwise be printed behind it.
  if (context.terminal && !context.json) context.out << EraseLine;
  FOREBAY_TRY(verified);
  // A stream of messages that ends well but without its last one has not looked at everything. "No
  // damage found" would be a wrong answer.
  if (!last.done) return Error(ErrorCode::kDataLoss, "the daemon did not verify everything");
  if (!context.json) {
    context.out << fmt::format("verified {} extents, {}: {} damaged\n",
                               HumanCount(last.extents_done), HumanBytes(last.bytes_done),
                               HumanCount(bad));
  }
  // Not an error: the daemon did its work and will fetch the damaged extents again.
  if (bad != 0) context.exit_code = ExitCode::kViolation;
  return {};
}

Status RunEvict(CommandContext& context, const EvictCall& call) {
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  FOREBAY_ASSIGN(const Evicted evicted, link.Evict(call));
  if (context.json) {
    context.PrintJson("evict", {{"dataset", call.dataset},
                                {"extents", evicted.extents},
                                {"bytes", evicted.bytes}});
  } else {
    context.out << fmt::format("evicted {} extents, {}\n", HumanCount(evicted.extents),
                               HumanBytes(evicted.bytes));
  }
  return {};
}

Status RunDrain(CommandContext& context, const DrainCall& call) {
  if (call.after_all && !call.node.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "--after-all and --node exclude each other: a node that leaves does not wait for "
                 "the readers of the others");
  }
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  FOREBAY_TRY(link.Drain(call));
  if (context.json) {
    context.PrintJson("drain", {{"draining", true},
                                {"node", call.node.empty() ? JsonValue() : JsonValue(call.node)}});
  } else if (!call.node.empty()) {
    context.out << fmt::format("node '{}' hands over what it has, and ends within {} s\n",
                               call.node, call.hand_over_s);
  } else {
    context.out << (call.after_all ? "the daemon drains when all nodes have finished\n"
                                   : "the daemon is draining\n");
  }
  return {};
}

// Verifies `names`: pack files here, data sets by the daemon. What is wrong with a pack decides on
// the exit code, although the data sets are verified after it.
Status RunVerifyAll(CommandContext& context, std::vector<std::string>& names) {
  // Kept in the order in which they were given, because results are printed in it.
  const auto packs = std::stable_partition(names.begin(), names.end(), std::not_fn(IsPackPath));
  const std::vector<std::string> paths(packs, names.end());
  names.erase(packs, names.end());
  Status status;
  if (!paths.empty()) status = VerifyPackFiles(context, paths);
  // Reported here and not returned, because the data sets are still to be verified.
  if (!status) context.Fail(status.error());
  // Without names at all, every data set is meant; with paths alone, no data set is.
  if (!paths.empty() && names.empty()) return {};
  const ExitCode of_packs = context.exit_code;
  status = RunVerify(context, names);
  if (!status) context.Fail(status.error());
  // RunVerify may have set a code of its own; the first failure is what the exit code is about.
  if (of_packs != ExitCode::kOk) context.exit_code = of_packs;
  return {};
}

}  // namespace

void AddVerify(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "verify", "Compare all that the daemon's tiers hold of data sets, or pack files, with their "
                "checksums.");
  auto names = std::make_shared<std::vector<std::string>>();
  command.AddOption("NAMES", *names,
                      "Data sets (default: all), or pack files and manifests of sets: names with "
                      "'/' in them or that end in .fbp or .fbset; these need no daemon")
      .ValueName("NAME|FILE");
  command.SetFooter("Exit code 3: damage was found (of data sets it will be fetched anew).");
  command.OnRun([&context, names] { return RunVerifyAll(context, *names); });
}

void AddEvict(Command& program, CommandContext& context) {
  Command command = program.AddCommand("evict", "Drop a data set from the tiers.");
  auto call = std::make_shared<EvictCall>();
  command.AddOption("NAME", call->dataset, "The data set").Required();
  command.AddOption("--tier", call->tier, "ram or ssd (default: both)").OneOf({"ram", "ssd"});
  command.OnRun([&context, call] { return RunEvict(context, *call); });
}

void AddDrain(Command& program, CommandContext& context) {
  Command command =
      program.AddCommand("drain", "End the daemon in good order, as SIGTERM does.");
  auto call = std::make_shared<DrainCall>();
  command.AddFlag("--after-all", call->after_all,
                  "Only when it was asked for this on all nodes of the job that answer: until then "
                  "it serves the other nodes");
  command
      .AddOption("--node", call->node,
                 "Have this node of the job leave instead: the other nodes take over what it has, "
                 "and then its daemon ends. Its rank, address or host, or its name as 'status "
                 "--nodes' shows it")
      .ValueName("RANK|ADDRESS|NAME");
  command
      .AddOption("--hand-over-s", call->hand_over_s,
                 "With --node: how long it waits for the others at most (default: 300)")
      .Within(1U, 86'400U);
  command.OnRun([&context, call] { return RunDrain(context, *call); });
}

}  // namespace forebay::cli
