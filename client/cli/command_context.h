// CommandContext: what every command of `forebay` shares: the global options, where output
// goes, and the way to the daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <grpcpp/client_context.h>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/daemon_connection.h"
#include "forebay/v1/admin.grpc.pb.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// ordered_json keeps the members of each object in the order of the documentation.
using Json = nlohmann::ordered_json;

struct CommandContext {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // `out` is a TTY: progress is drawn in place
  std::string address;    // "unix:/path", after defaults
  bool json = false;
  std::int64_t connect_timeout_ms = 5'000;
  ExitCode exit_code = ExitCode::kOk;

  // Prints one JSON object as one line, with its schema's name first: "forebay.<name>.v1".
  void PrintJson(std::string_view name, Json object);
  // Reports an error (on `err`, or as JSON on `out`) and sets the exit code.
  void Fail(const Error& error);
};

// A connection with the admin service's stub.
struct AdminLink {
  std::shared_ptr<const internal::DaemonConnection> connection;
  std::unique_ptr<v1::Admin::Stub> stub;
};
Result<AdminLink> ConnectAdmin(const CommandContext& context);

void SetDeadline(grpc::ClientContext& call, std::chrono::milliseconds timeout);

// Each adds one subcommand whose callback runs it and sets context.exit_code.
void AddDatasets(CLI::App& app, CommandContext& context);
void AddStage(CLI::App& app, CommandContext& context);
void AddStatus(CLI::App& app, CommandContext& context);
void AddReport(CLI::App& app, CommandContext& context);
void AddVerify(CLI::App& app, CommandContext& context);
void AddEvict(CLI::App& app, CommandContext& context);
void AddDrain(CLI::App& app, CommandContext& context);
void AddOrder(CLI::App& app, CommandContext& context);
void AddAudit(CLI::App& app, CommandContext& context);
void AddBench(CLI::App& app, CommandContext& context);
void AddCompress(CLI::App& app, CommandContext& context);
void AddPack(CLI::App& app, CommandContext& context);
void AddUnpack(CLI::App& app, CommandContext& context);
void AddInspect(CLI::App& app, CommandContext& context);

// The whole program: parses `arguments` (without the program's name) and runs the command.
struct ProgramStreams {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;
};
int RunForebay(std::vector<std::string> arguments, const ProgramStreams& streams);

}  // namespace forebay::cli
