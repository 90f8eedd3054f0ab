// The options of `order` and `bench` that say which stream is meant.
#pragma once

#include <memory>
#include <string>

#include "forebay/stream_options.h"
#include "proto/contract/result.h"

namespace forebay::cli {

class Command;

struct StreamArguments {
  StreamOptions options;
  std::string mode = "global";
  std::string epoch0_mode;
  double exchange_fraction = 0.1;
  std::string tail = "drop";
};

// Adds DATASET, --selection, --seed, --mode, ... to a command.
std::shared_ptr<StreamArguments> AddStreamArguments(Command& command);
// Fills options.mode and the like from their names.
Status ResolveStreamArguments(StreamArguments& arguments);

}  // namespace forebay::cli
