// Runs forebay-compress-train, a program of its own because it needs LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/cli/command_context.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// Where the program lies: beside this one, else in $PATH. kNotFound says how to get it.
Result<std::string> FindTrainer();

// Of a finished training: what it measured on chunks that it did not train on.
struct TrainingOutcome {
  std::uint64_t model_bytes = 0;
  std::uint64_t held_out_raw_bytes = 0, dense_bytes = 0, learned_bytes = 0;
  std::uint32_t macs_per_pixel = 0;

  // Whether a pack of `raw_bytes` like those held out would save more than the model's bytes.
  bool Pays(std::uint64_t raw_bytes) const;
  double gain() const;  // dense size over learned size, less one; 0 where nothing was held out
};

// Runs `trainer` with `arguments` and --json; `report` gets every event but the last. Errors: what
// the program wrote that is no event, with kInvalidArgument where it says wrong usage.
Result<TrainingOutcome> RunTrainer(const std::string& trainer,
                                   const std::vector<std::string>& arguments,
                                   const std::function<void(const ParsedJson&)>& report);

}  // namespace forebay::cli
