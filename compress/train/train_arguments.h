// The command line of forebay-compress-train: the parser and what describes it (the manual page,
// the completions) use this one definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compress/train/chunk_planes.h"
#include "compress/train/net_trainer.h"

namespace CLI {
class App;
}

namespace forebay::compress {

struct TrainArguments {
  std::string pack, field, out;
  RawFrames raw;
  std::vector<std::uint32_t> raw_shape;
  double held_out = 0.5;
  std::size_t limit_mib = 2048;
  std::size_t rows_max = 4'000'000;
  std::uint32_t macs_max = 1700;
  NetOptions net;
  bool json = false, all_kernels = false;
};

// Names and describes `app`, and adds the options. `arguments` is filled when `app` parses.
void DefineTrainArguments(CLI::App& app, TrainArguments& arguments);

}  // namespace forebay::compress
