// Runs a command line of `forebay` in the test's own process.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace forebay::cli {

using Json = nlohmann::ordered_json;

struct ForebayRun {
  int code = -1;
  std::string out, err;

  // With --json: one object per line of output; and the last of them.
  std::vector<Json> lines() const;
  Json last() const;
};

ForebayRun Forebay(std::vector<std::string> arguments, bool terminal = false);

}  // namespace forebay::cli

// Compiled once, in forebay_run.cc: tests would each spend seconds on the same code.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
