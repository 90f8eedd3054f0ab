#include "client/cli/stream/stream_arguments.h"

#include <CLI/CLI.hpp>

namespace forebay::cli {

std::shared_ptr<StreamArguments> AddStreamArguments(CLI::App& command) {
  auto arguments = std::make_shared<StreamArguments>();
  StreamOptions& options = arguments->options;
  options.global_batch = 64;
  command.add_option("DATASET", options.dataset, "The data set")->required();
  command.add_option("--selection", options.selection, "Which samples (default: all)");
  command.add_option("--global-batch", options.global_batch, "Samples per step (default: 64)");
  command.add_option("--seed", options.seed, "Of the order (default: 0)");
  command.add_option("--mode", arguments->mode, "The order (default: global)")
      ->check(CLI::IsMember({"global", "block", "sequential"}));
  command.add_option("--epoch0-mode", arguments->epoch0_mode, "Another mode for epoch 0")
      ->check(CLI::IsMember({"global", "block", "sequential"}));
  command.add_option("--block-samples", options.block_samples, "Mode block: samples of a run");
  command.add_option("--window-runs", options.window_runs, "Mode block: runs of a window");
  command.add_option("--tail", arguments->tail,
                     "What becomes of samples that fill no batch (default: drop)")
      ->check(CLI::IsMember({"drop", "pad", "short"}));
  return arguments;
}

Status ResolveStreamArguments(StreamArguments& arguments) {
  StreamOptions& options = arguments.options;
  FOREBAY_ASSIGN(options.mode, ParseOrderMode(arguments.mode));
  FOREBAY_ASSIGN(options.tail, ParseTailPolicy(arguments.tail));
  if (!arguments.epoch0_mode.empty()) {
    FOREBAY_ASSIGN(const OrderMode first, ParseOrderMode(arguments.epoch0_mode));
    options.epoch0_mode = first;
  }
  return {};
}

}  // namespace forebay::cli
