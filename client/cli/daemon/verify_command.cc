// `forebay verify`, `evict` and `drain`: upkeep of a daemon; `verify` also of pack files.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/cli/commands.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/human_text.h"
#include "client/cli/inspect/pack_verify.h"
#include "client/cli/printable_stream.h"
#include "client/cli/progress_line.h"
#include "client/connection/rpc_status.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

constexpr std::chrono::hours kVerifyDeadline(24);

void PrintVerifyEvent(CommandContext& context, const v1::VerifyProgress& progress) {
  Json event = {{"event", progress.done() ? "done" : "progress"},
                {"extents_total", progress.extents_total()},
                {"extents_done", progress.extents_done()},
                {"bytes_done", progress.bytes_done()},
                {"extents_bad", progress.extents_bad()},
                {"errors", Json::array()}};
  for (const std::string& error : progress.errors()) event["errors"].push_back(error);
  context.PrintJson("verify", std::move(event));
}

Status RunVerify(CommandContext& context, const std::vector<std::string>& names) {
  FOREBAY_ASSIGN(const AdminLink link, ConnectAdmin(context));
  grpc::ClientContext call;
  SetDeadline(call, kVerifyDeadline);
  v1::VerifyRequest request;
  for (const std::string& name : names) request.add_datasets(name);
  const auto reader = link.stub->Verify(&call, request);
  v1::VerifyProgress last;
  std::uint64_t bad = 0;
  for (v1::VerifyProgress progress; reader->Read(&progress); last = progress) {
    bad = std::max(bad, progress.extents_bad());
    if (context.json) {
      PrintVerifyEvent(context, progress);
      continue;
    }
    for (const std::string& error : progress.errors()) {
      context.err << PrintableLine(error) << '\n';
    }
    if (context.terminal) {
      context.out << EraseLine
                  << fmt::format("verifying: {} of {} extents, {}",
                                 HumanCount(progress.extents_done()),
                                 HumanCount(progress.extents_total()),
                                 HumanBytes(progress.bytes_done()))
                  << std::flush;
    }
  }
  if (context.terminal && !context.json) context.out << EraseLine;
  FOREBAY_TRY(internal::StatusFromRpc(reader->Finish()));
  if (!last.done()) return Error(ErrorCode::kDataLoss, "the daemon did not verify everything");
  if (!context.json) {
    context.out << fmt::format("verified {} extents, {}: {} damaged\n",
                               HumanCount(last.extents_done()), HumanBytes(last.bytes_done()),
                               HumanCount(bad));
  }
  if (bad != 0) context.exit_code = ExitCode::kViolation;
  return {};
}

Status RunEvict(CommandContext& context, const v1::EvictRequest& request) {
  FOREBAY_ASSIGN(const AdminLink link, ConnectAdmin(context));
  grpc::ClientContext call;
  SetDeadline(call, std::chrono::milliseconds(limits::kCallDeadlineMs));
  v1::EvictReply reply;
  FOREBAY_TRY(internal::StatusFromRpc(link.stub->Evict(&call, request, &reply)));
  if (context.json) {
    context.PrintJson("evict", {{"dataset", request.dataset()},
                                {"extents", reply.extents()},
                                {"bytes", reply.bytes()}});
  } else {
    context.out << fmt::format("evicted {} extents, {}\n", HumanCount(reply.extents()),
                               HumanBytes(reply.bytes()));
  }
  return {};
}

Status RunDrain(CommandContext& context) {
  FOREBAY_ASSIGN(const AdminLink link, ConnectAdmin(context));
  grpc::ClientContext call;
  SetDeadline(call, std::chrono::milliseconds(limits::kDrainDeadlineMs));
  v1::DrainReply reply;
  FOREBAY_TRY(internal::StatusFromRpc(link.stub->Drain(&call, {}, &reply)));
  if (context.json) {
    context.PrintJson("drain", {{"draining", true}});
  } else {
    context.out << "the daemon is draining\n";
  }
  return {};
}

}  // namespace

void AddVerify(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "verify", "Compare all that the daemon's tiers hold of data sets, or pack files, with their "
                "checksums.");
  auto names = std::make_shared<std::vector<std::string>>();
  command->add_option("NAMES", *names,
                      "Data sets (default: all), or pack files and manifests of sets: names with "
                      "'/' in them or that end in .fbp or .fbset; these need no daemon")
      ->type_name("NAME|FILE");
  command->footer("Exit code 3: damage was found (of data sets it will be fetched anew).");
  command->callback([&context, names] {
    const auto packs =
        std::stable_partition(names->begin(), names->end(), std::not_fn(IsPackPath));
    const std::vector<std::string> paths(packs, names->end());
    names->erase(packs, names->end());
    Status status;
    if (!paths.empty()) status = VerifyPackFiles(context, paths);
    if (!status) context.Fail(status.error());
    if (!paths.empty() && names->empty()) return;
    const ExitCode of_packs = context.exit_code;
    status = RunVerify(context, *names);
    if (!status) context.Fail(status.error());
    if (of_packs != ExitCode::kOk) context.exit_code = of_packs;
  });
}

void AddEvict(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("evict", "Drop a data set from the tiers.");
  auto request = std::make_shared<v1::EvictRequest>();
  command->add_option_function<std::string>(
             "NAME", [request](const std::string& name) { request->set_dataset(name); },
             "The data set")
      ->required();
  command
      ->add_option_function<std::string>(
          "--tier", [request](const std::string& tier) { request->set_tier(tier); },
          "ram or ssd (default: both)")
      ->check(CLI::IsMember({"ram", "ssd"}));
  command->callback([&context, request] {
    Status status = RunEvict(context, *request);
    if (!status) context.Fail(status.error());
  });
}

void AddDrain(CLI::App& app, CommandContext& context) {
  app.add_subcommand("drain", "End the daemon in good order, as SIGTERM does.")
      ->callback([&context] {
        Status status = RunDrain(context);
        if (!status) context.Fail(status.error());
      });
}

}  // namespace forebay::cli
