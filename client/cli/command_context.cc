// Output that every command makes the same way: objects of JSON with the name of their schema, and
// errors, for people or for programs.
#include "client/cli/command_context.h"

#include "proto/contract/printable.h"

namespace forebay::cli {

void CommandContext::PrintJson(std::string_view name, const JsonObject& object) {
  JsonObject whole = {{"schema", "forebay." + std::string(name) + ".v1"}};
  whole.Add(object);
  out << whole.Text() << '\n' << std::flush;
}

void CommandContext::Fail(const Error& error) {
  // Every kind of error has its own exit code, so that a job script can decide without reading
  // text.
  exit_code = ExitCodeOf(error.code());
  if (json) {
    PrintJson("error", {{"code", ErrorCodeName(error.code())}, {"message", error.message()}});
  } else {
    err << "forebay: " << PrintableLine(error.message()) << '\n';
  }
}

}  // namespace forebay::cli
