// CommandContext: what every command of `forebay` shares: the global options and where output goes.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/exit_code.h"
#include "client/cli/json_value.h"
#include "proto/contract/result.h"

namespace forebay::cli {

struct CommandContext {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // `out` is a TTY: progress is drawn in place
  std::string address;    // as given; empty: see DaemonAddress
  bool json = false;
  std::int64_t connect_timeout_ms = 5'000;
  ExitCode exit_code = ExitCode::kOk;
  std::vector<std::string> arguments = {};  // the command line, as given

  // Prints one JSON object as one line, with its schema's name first: "forebay.<name>.v1".
  void PrintJson(std::string_view name, const JsonObject& object);
  // Reports an error (on `err`, or as JSON on `out`) and sets the exit code.
  void Fail(const Error& error);
};

}  // namespace forebay::cli
