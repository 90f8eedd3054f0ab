// write_order: the order of a stream as a file, so that peers read the same samples in the same
// order as Forebay's consumer. It calls the function that the daemon calls; without that, a
// comparison would also measure how well each order suits the caches.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/order_spec.h"

namespace forebay::bench {
namespace {

struct Options {
  std::uint64_t samples = 0;
  std::uint32_t epochs = 1;
  std::uint64_t seed = 0;
  std::string mode = "global";
  std::uint64_t block_samples = 1024;
  std::uint64_t window_runs = 16;
  std::uint32_t canonical_nodes = 0;
  double exchange_fraction = 0.1;
  std::uint32_t global_batch = 64;
  std::string output;
};

Status WriteOrder(const Options& options) {
  OrderSpec spec;
  spec.seed = options.seed;
  spec.sample_count = options.samples;
  FOREBAY_ASSIGN(spec.shape.mode, ParseOrderMode(options.mode));
  // Left at its defaults for "global", because Validate refuses parameters that have no meaning.
  if (spec.shape.mode == OrderMode::kBlock) {
    spec.shape.block_samples = options.block_samples;
    spec.shape.window_runs = options.window_runs;
  } else if (spec.shape.mode == OrderMode::kPartial) {
    spec.shape.block_samples = options.block_samples;
    spec.shape.canonical_nodes = options.canonical_nodes;
    FOREBAY_ASSIGN(spec.shape.exchange_millionths, ExchangeMillionths(options.exchange_fraction));
    spec.shape.global_batch = options.global_batch;
  }
  FOREBAY_TRY(spec.Validate());
  std::ofstream file(options.output, std::ios::binary);
  std::vector<std::uint64_t> ids(options.samples);
  for (std::uint32_t epoch = 0; epoch < options.epochs; ++epoch) {
    // A whole epoch at a time: the file is made before the timing, so speed does not matter.
    Order(spec, EpochId(epoch)).Forward(Position(0), ids);
    file.write(reinterpret_cast<const char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof(ids[0])));
  }
  // Checked after closing: a full disk may show only then.
  file.close();
  if (!file) return Error(ErrorCode::kUnknown, "cannot write " + options.output);
  return {};
}

int Run(int argc, char** argv) {
  Options options;
  CLI::App app("write_order: writes the sample ids of a stream, epoch after epoch");
  app.add_option("--samples", options.samples)->required()->check(CLI::PositiveNumber);
  app.add_option("--epochs", options.epochs)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--mode", options.mode)->capture_default_str();
  app.add_option("--block-samples", options.block_samples)->capture_default_str();
  app.add_option("--window-runs", options.window_runs)->capture_default_str();
  app.add_option("--canonical-nodes", options.canonical_nodes)->capture_default_str();
  app.add_option("--exchange-fraction", options.exchange_fraction)->capture_default_str();
  app.add_option("--batch", options.global_batch, "Samples per step over all ranks")
      ->capture_default_str();
  app.add_option("--out", options.output)->required();
  CLI11_PARSE(app, argc, argv);
  if (const Status status = WriteOrder(options); !status) {
    std::fprintf(stderr, "write_order: %s\n", status.error().ToString().c_str());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Run(argc, argv); }
