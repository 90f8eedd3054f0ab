// One run of the program with its output kept, and the JSON library's code for all tests.
#include "client/cli/testing/forebay_run.h"

#include <sstream>
#include <utility>

#include "client/cli/program.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace forebay::cli {

std::vector<Json> ForebayRun::lines() const {
  std::vector<Json> parsed;
  std::istringstream text(out);
  for (std::string line; std::getline(text, line);) parsed.push_back(Json::parse(line));
  return parsed;
}

Json ForebayRun::last() const {
  const std::vector<Json> all = lines();
  return all.empty() ? Json() : all.back();
}

ForebayRun Forebay(std::vector<std::string> arguments, bool terminal) {
  std::ostringstream out;
  std::ostringstream err;
  ForebayRun run;
  run.code = RunForebay(std::move(arguments), {.out = out, .err = err, .terminal = terminal});
  run.out = out.str();
  run.err = err.str();
  return run;
}

}  // namespace forebay::cli
