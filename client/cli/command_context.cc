#include "client/cli/command_context.h"

#include <fmt/format.h>

#include "proto/contract/printable.h"

namespace forebay::cli {

void CommandContext::PrintJson(std::string_view name, Json object) {
  Json whole;
  whole["schema"] = fmt::format("forebay.{}.v1", name);
  whole.update(object);
  out << whole.dump(-1, ' ', true, Json::error_handler_t::replace) << '\n' << std::flush;
}

void CommandContext::Fail(const Error& error) {
  exit_code = ExitCodeOf(error.code());
  if (json) {
    PrintJson("error", {{"code", ErrorCodeName(error.code())}, {"message", error.message()}});
  } else {
    err << "forebay: " << PrintableLine(error.message()) << '\n';
  }
}

}  // namespace forebay::cli
