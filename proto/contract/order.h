// Order: the permutation of one epoch of a stream, forward and inverse in O(1) (docs/design.md, 6;
// docs/order.md). Order::Inverse answers when a sample is needed next.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "proto/contract/ids.h"
#include "proto/contract/order_block.h"
#include "proto/contract/order_partial.h"
#include "proto/contract/order_permutation.h"
#include "proto/contract/order_spec.h"

namespace forebay {

// One epoch's order of [0, n). An immutable value of about 700 bytes. Construction and every
// call take constant time for any n, allocate nothing, never block and cannot fail; an argument
// outside [0, n) is a programming error (FOREBAY_CHECK). Thread-safe. An index is an index in the
// selection, not a SampleId: the selection maps one to the other.
class Order {
 public:
  // Requires spec.Validate().
  Order(const OrderSpec& spec, EpochId epoch);

  std::uint64_t sample_count() const { return sample_count_; }
  EpochId epoch() const { return epoch_; }
  OrderMode mode() const { return mode_; }

  // Returns the index in [0, n) of the sample at `position`, which is below n.
  std::uint64_t Forward(Position position) const;

  // Returns the position of the sample `index`, which is below n: Inverse(Forward(p)) == p.
  Position Inverse(std::uint64_t index) const;

  // Sets indices[i] = Forward(first + i), several in flight at once: the way to fill a minibatch.
  // Requires first + indices.size() <= n.
  void Forward(Position first, std::span<std::uint64_t> indices) const;

  // In place: values[i], an index, becomes its position. In modes kBlock and kPartial this is
  // fastest if neighbours in `values` are neighbours in the data set, as the samples of an extent
  // are.
  void Inverse(std::span<std::uint64_t> values) const;

 private:
  struct Identity {};
  using Engine = std::variant<Identity, KeyedPermutation, BlockOrder, PartialOrder>;
  static Engine MakeEngine(const OrderSpec& spec, EpochId epoch);

  std::uint64_t sample_count_;
  EpochId epoch_;
  OrderMode mode_;
  Engine engine_;
};

// The seed of the random transform of one sample in one epoch. It does not depend on the rank or
// thread that applies the transform (docs/order.md, section 6). `sample` is the catalog's id;
// `seed` is OrderSpec::seed.
std::uint64_t TransformSeed(std::uint64_t seed, EpochId epoch, SampleId sample);

}  // namespace forebay
