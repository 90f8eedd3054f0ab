// The command line of forebay-compress-train, defined with CLI11.
#include "compress/train/train_arguments.h"

#include <algorithm>
#include <thread>

#include <CLI/CLI.hpp>

namespace forebay::compress {

void DefineTrainArguments(CLI::App& app, TrainArguments& arguments) {
  app.name("forebay-compress-train");
  app.description("Trains a learned predictor for packs of profile `learned` on earlier frames.");
  // hardware_concurrency() returns 0 where it does not know. The upper bound limits the default
  // only.
  arguments.net.threads = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  app.add_option("PACK", arguments.pack, "A pack file whose first chunks are trained on")
      ->type_name("FILE");
  app.add_option("--raw", arguments.raw.path, "Instead: a file of u8 frames without a header")
      ->type_name("FILE");
  app.add_option("--shape", arguments.raw_shape, "Of --raw: frames, rows, columns")
      ->expected(3)
      ->delimiter(',');
  // Ranges are checked here, so that the program can rely on them.
  app.add_option("--chunk-frames", arguments.raw.chunk_frames, "Of --raw (default: 8)")
      ->check(CLI::Range(1U, 65536U));
  app.add_option("--field", arguments.field, "Of PACK (default: all that have planes)");
  app.add_option("--out", arguments.out, "Where the predictor goes")
      ->required()
      ->type_name("FILE");
  app.add_option("--held-out", arguments.held_out,
                 "The share of chunks, the last ones, that are measured and not trained on "
                 "(default: 0.5)")
      // At least a tenth is left to train on.
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--epochs", arguments.net.epochs, "Passes over the examples (default: 8)")
      ->check(CLI::Range(1U, 1000U));
  app.add_option("--hidden", arguments.net.hidden, "Widths of the hidden layers (default: 32,12)")
      ->delimiter(',');
  app.add_option("--macs-max", arguments.macs_max,
                 "Multiplications per pixel that are allowed (default: 1700)");
  app.add_option("--rows-max", arguments.rows_max,
                 "Pixels trained on, drawn from all (default: 4000000)")
      ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 28));
  app.add_option("--limit-mib", arguments.limit_mib, "Of planes in memory (default: 2048)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20));
  app.add_option("--seed", arguments.net.seed, "Of everything that is drawn (default: 1)");
  app.add_option("--threads", arguments.net.threads, "Of LibTorch (default: one per core)")
      ->check(CLI::Range(1U, 1024U));
  app.add_flag("--all-kernels", arguments.all_kernels,
               "Decode what is held out on every kernel of this processor, not on the fastest");
  app.add_flag("--json", arguments.json, "A line of JSON per event");
  // LibTorch adds up in another order with another number of threads.
  app.footer("The same input, seed, options, threads and LibTorch give the same predictor.");
}

}  // namespace forebay::compress
