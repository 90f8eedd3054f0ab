// The command line of forebay-train: the parser (ParseCommandLine of train_config.h) and what
// describes it (the manual page, the completions) use this one definition.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/core/config/train_config.h"

namespace CLI {
class App;
}

namespace forebay::train {

struct RawArguments {
  std::string config_path;
  std::vector<std::string> assignments;                      // --set
  std::vector<std::pair<std::string, std::string>> by_flag;  // key, text
  bool print_config = false;
  bool lists_models = false;
};

// Names and describes `app`, and adds the options. `raw` is filled when `app` parses.
void DefineCommandLine(CLI::App& app, RawArguments& raw);

}  // namespace forebay::train
