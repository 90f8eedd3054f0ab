// Declares the options that name a stream and its order, with the defaults and the names of modes
// that StreamOptions has, and turns the names into values once they have been parsed.
#include "client/cli/stream/stream_arguments.h"

#include "client/cli/command_declaration.h"

namespace forebay::cli {

std::shared_ptr<StreamArguments> AddStreamArguments(Command& command) {
  // Shared: the parser writes into it long after this function has returned.
  auto arguments = std::make_shared<StreamArguments>();
  StreamOptions& options = arguments->options;
  // The default suits a first look at a data set. To see the order of a training run, the user
  // gives the run's own batch, on which the order depends.
  options.global_batch = 64;
  command.AddOption("DATASET", options.dataset, "The data set").Required();
  command.AddOption("--selection", options.selection, "Which samples (default: all)");
  command.AddOption("--global-batch", options.global_batch, "Samples per step (default: 64)");
  command.AddOption("--seed", options.seed, "Of the order (default: 0)");
  command.AddOption("--mode", arguments->mode, "The order (default: global)")
      .OneOf({"global", "block", "sequential", "partial"});
  command.AddOption("--epoch0-mode", arguments->epoch0_mode, "Another mode for epoch 0")
      .OneOf({"global", "block", "sequential", "partial"});
  command.AddOption("--block-samples", options.block_samples,
                    "Modes block and partial: samples of a run (default: 1024)");
  command.AddOption("--window-runs", options.window_runs,
                    "Mode block: runs of a window (default: 16)");
  command.AddOption("--canonical-nodes", options.canonical_nodes,
                    "Mode partial: number of fixed shares; divides the global batch");
  command.AddOption("--exchange-fraction", arguments->exchange_fraction,
                    "Mode partial: part of a share that is exchanged (default: 0.1)")
      .Within(0.0, 1.0);
  command.AddOption("--tail", arguments->tail,
                     "What becomes of samples that fill no batch (default: drop)")
      .OneOf({"drop", "pad", "short"});
  return arguments;
}

Status ResolveStreamArguments(StreamArguments& arguments) {
  StreamOptions& options = arguments.options;
  FOREBAY_ASSIGN(options.mode, ParseOrderMode(arguments.mode));
  FOREBAY_ASSIGN(options.tail, ParseTailPolicy(arguments.tail));
  FOREBAY_ASSIGN(options.exchange_millionths, ExchangeMillionths(arguments.exchange_fraction));
  // Without the option, epoch 0 has the mode of all epochs.
  if (!arguments.epoch0_mode.empty()) {
    FOREBAY_ASSIGN(const OrderMode first, ParseOrderMode(arguments.epoch0_mode));
    options.epoch0_mode = first;
  }
  return {};
}

}  // namespace forebay::cli
