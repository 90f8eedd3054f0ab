// How well an order mixes a data set, measured on the order itself. `forebay tune` compares modes
// by these figures: a mode that reads less also mixes less.
//
//   const ClassLayout classes = ClassLayout::Sorted(60'000, 10);
//   FOREBAY_ASSIGN(const ShuffleQuality block,
//                  MeasureShuffleQuality(spec, {.global_batch = 64, .parts = 4}, classes));
#pragma once

#include <cstdint>

#include "client/cli/tune/class_layout.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// How a step is divided: each of `parts` nodes computes the same share of a global batch. Batch
// normalisation sees the part alone, so a part has to be mixed well, too.
struct BatchShape {
  std::uint64_t global_batch = 0;
  std::uint64_t parts = 1;  // divides global_batch
};

// All figures have no unit. They are means over steps that are spread evenly over some epochs.
struct ShuffleQuality {
  // The mean distance between a sample's place in storage and its position in the epoch, divided by
  // that of a uniformly random permutation, which is (n - 1/n) / 3. 0: the order of storage;
  // about 1: as `global`.
  double displacement = 0;
  // The entropy of the classes in a global batch, and in the part of one node, divided by the
  // entropy of the classes of the whole set. 1: every batch has the classes in the proportions of
  // the set; 0: one class. Because a batch has few samples, `global` itself stays below 1. It is 1
  // if the set has one class.
  double batch_entropy = 0;
  double part_entropy = 0;
  // The share of successive positions of a step whose samples are neighbours in storage, in either
  // direction. 1: the order of storage; 2/n for a uniformly random permutation.
  double repeated_neighbours = 0;
  std::uint64_t positions = 0;  // that the figures were computed from
};

// Computes the figures from the published order (proto/contract/order.h), not from formulas about
// it, for at most four million positions. Takes a second at most. Requires a valid spec of
// classes.sample_count() samples. kInvalidArgument if the parts do not divide the batch, or if the
// samples do not fill one step.
Result<ShuffleQuality> MeasureShuffleQuality(const OrderSpec& spec, const BatchShape& batch,
                                             const ClassLayout& classes);

// How much lower the class entropy of an order is than that of `global`: 0.02 is 2 % less, and 0 is
// the least. These are the figures that the tolerances of `forebay tune` limit. There are two,
// because a poor batch spoils every step, while a poor part spoils what a node normalises alone.
struct EntropyLoss {
  double batch = 0;
  double part = 0;
};
EntropyLoss EntropyLossOf(const ShuffleQuality& quality, const ShuffleQuality& global);

}  // namespace forebay::cli
