// The modes of the order that `forebay tune` compares, and the choice among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/cli/tune/reading_cost.h"
#include "client/cli/tune/shuffle_quality.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// The job for which modes are compared: its samples, its global batch B, and its nodes, which are
// the canonical nodes M of `partial`.
struct ModeSetting {
  std::uint64_t samples = 0;
  std::uint64_t extent_samples = 1;  // about as many samples has an extent
  std::uint32_t global_batch = 0;
  std::uint32_t nodes = 1;
};

// `global`, the less strict ones of `partial` and `block` before the stricter ones. `partial` is
// left out for one node, which has nobody to exchange samples with, and windows of `block` that
// would hold the whole set.
std::vector<OrderShape> UsualModes(const ModeSetting& setting);

// Reads "global", "sequential", "block:B:W", "partial:Q" or "partial:Q:B". B is the samples of a
// run; without it, `partial` has runs of an extent. W is the runs of a window, Q the fraction that
// is exchanged. Errors: kInvalidArgument (the message repeats the text), kOutOfRange.
Result<OrderShape> ParseMode(const std::string& text, const ModeSetting& setting);

std::string ModeText(const OrderShape& shape);        // "block(4096, 16)"
std::string TrainerFlags(const OrderShape& shape);    // of forebay-train
std::string StreamOptionsText(const OrderShape& shape);  // C++: "options.mode = ...;"

struct ModeAssessment {
  OrderShape shape = {};
  ReadingCost cost = {};
  ShuffleQuality quality = {};
  EntropyLoss loss = {};  // beside `global`
  bool is_refused = false;  // a daemon refuses a stream of this mode
};

// How much class entropy batches, and the parts of them that nodes compute, may lose.
struct LossTolerance {
  double batch = 0;
  double part = 0;

  bool Allows(const EntropyLoss& loss) const { return loss.batch <= batch && loss.part <= part; }
};

struct ModeChoice {
  std::size_t index = 0;
  bool mixes_well = true;  // within the tolerance; otherwise the mode is not recommended
};

// Returns the cheapest assessment that is not refused and that `tolerance` allows. If there is
// none, it returns the cheapest one that is not refused. Among those that cost within one per cent
// of it, which an estimate does not tell apart, it takes the first one. Requires that the first
// assessment is that of `global`, and that one is not refused.
ModeChoice ChooseMode(std::span<const ModeAssessment> modes, const LossTolerance& tolerance);
// Says why, in a sentence.
std::string ReasonOf(std::span<const ModeAssessment> modes, const ModeChoice& choice);

}  // namespace forebay::cli
