// Mode partial(b, M, q, B). A sample's way through an epoch has four permutations: the home order
// gives it a node and a place in the node's share; the draw of the node gives it an entry in the
// node's list; the exchange moves some entries to other nodes; and the list's own permutation says
// when it is read. The code handles positions in groups, so that each permutation is applied to
// many elements at once, and both directions share it. docs/order.md, section 4, has the formulas.
#include "proto/contract/order_partial.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

// Elements that are handled together. It bounds the use of the stack.
constexpr std::size_t kPartialGroup = 64;

constexpr std::uint64_t kNone = ~std::uint64_t{0};

// q * samples, rounded half up. The product is below 2^60.
std::uint64_t ExchangedOf(std::uint64_t samples, std::uint64_t millionths) {
  return (samples * millionths + 500'000) / 1'000'000;
}

// Shares of two sizes give shares of the pool of two sizes, or of one; in both cases the rule that
// cuts the data set into shares cuts the pool, too.
std::uint64_t PoolOf(const PartialOrderOptions& options) {
  const std::uint64_t small = options.sample_count / options.canonical_nodes;
  const std::uint64_t large_shares = options.sample_count % options.canonical_nodes;
  return (options.canonical_nodes - large_shares) *
             ExchangedOf(small, options.exchange_millionths) +
         large_shares * ExchangedOf(small + 1, options.exchange_millionths);
}

void Apply(const KeyedPermutation& permutation, std::span<std::uint64_t> values, bool inverse) {
  if (inverse) {
    permutation.Inverse(values);
  } else {
    permutation.Forward(values);
  }
}

}  // namespace

// Where some elements are: entry places[i] of what node nodes[i] has.
struct PartialOrder::Group {
  std::array<std::uint64_t, kPartialGroup> nodes;
  std::array<std::uint64_t, kPartialGroup> places;
  std::size_t count = 0;
};

PartialOrder::Parts::Parts(std::uint64_t total, std::uint64_t count)
    : total_(total),
      count_(count),
      by_count_(count),
      by_total_(std::max<std::uint64_t>(total, 1)) {}

PartialOrder::PartialOrder(const PartialOrderOptions& options)
    : global_batch_(options.global_batch),
      part_samples_(options.global_batch / options.canonical_nodes),
      full_steps_(options.sample_count / options.global_batch),
      run_samples_(std::min(options.run_samples, options.sample_count)),
      full_run_end_(options.sample_count - options.sample_count % run_samples_),
      draws_key_(options.draws_key),
      lists_key_(options.lists_key),
      exchanged_(PoolOf(options)),
      shares_(options.sample_count, options.canonical_nodes),
      pool_(exchanged_, options.canonical_nodes),
      last_step_(options.sample_count % options.global_batch, options.canonical_nodes),
      by_global_batch_(global_batch_),
      by_part_samples_(part_samples_),
      by_run_samples_(run_samples_),
      small_share_(options.sample_count / options.canonical_nodes),
      large_share_(small_share_.size + 1),
      runs_(full_run_end_ / run_samples_, options.home_key),
      // A permutation has at least one element. Without an exchange it is not used.
      exchange_(std::max<std::uint64_t>(exchanged_, 1), options.exchange_key) {}

inline const FeistelShape& PartialOrder::ShapeOf(std::uint64_t node) const {
  return shares_.Length(node) == small_share_.size ? small_share_ : large_share_;
}

// Successive elements of one node share a permutation, which is kept until another node has
// successive elements. An element that stands alone does not pay for the derivation of all keys.
void PartialOrder::PermuteWithinShares(Group& group, std::uint64_t key,
                                       Direction direction) const {
  const bool inverse = direction == Direction::kInverse;
  std::optional<KeyedPermutation> kept;
  std::uint64_t kept_node = kNone;
  std::size_t end = 0;
  for (std::size_t begin = 0; begin < group.count; begin = end) {
    const std::uint64_t node = group.nodes[begin];
    for (end = begin + 1; end < group.count && group.nodes[end] == node;) ++end;
    const FeistelShape& shape = ShapeOf(node);
    const std::uint64_t node_key = Absorb64(key, node);
    if (end - begin == 1 && node != kept_node) {
      std::uint64_t& place = group.places[begin];
      place = inverse ? KeyedPermutation::InverseOnce(shape, node_key, place)
                      : KeyedPermutation::ForwardOnce(shape, node_key, place);
      continue;
    }
    if (node != kept_node) kept.emplace(shape.size, node_key);
    kept_node = node;
    Apply(*kept, std::span(group.places).subspan(begin, end - begin), inverse);
  }
}

// The first entries of each node are its part of the pool. Entries and pool places correspond in
// order, so the same steps serve both directions.
void PartialOrder::Exchange(Group& group, Direction direction) const {
  if (exchanged_ == 0) return;
  std::array<std::uint64_t, kPartialGroup> moved;   // places in the pool
  std::array<std::size_t, kPartialGroup> elements;  // which of the group they are
  std::size_t count = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    const std::uint64_t begin = pool_.Begin(group.nodes[i]);
    if (group.places[i] >= pool_.Begin(group.nodes[i] + 1) - begin) continue;
    moved[count] = begin + group.places[i];
    elements[count++] = i;
  }
  Apply(exchange_, std::span(moved).first(count), direction == Direction::kInverse);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t node = pool_.Of(moved[i]);
    group.nodes[elements[i]] = node;
    group.places[elements[i]] = moved[i] - pool_.Begin(node);
  }
}

// The short last run stays last, so its samples are left as they are.
void PartialOrder::PermuteRuns(std::span<std::uint64_t> values, Direction direction) const {
  std::array<std::uint64_t, kPartialGroup> runs;
  std::array<std::uint64_t, kPartialGroup> in_run;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [run, rest] = by_run_samples_.Divide(values[i]);
    // A harmless 0 stands in for the short run, which the permutation does not have.
    runs[i] = values[i] < full_run_end_ ? run : 0;
    in_run[i] = rest;
  }
  Apply(runs_, std::span(runs).first(values.size()), direction == Direction::kInverse);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < full_run_end_) values[i] = runs[i] * run_samples_ + in_run[i];
  }
}

void PartialOrder::ForwardGroup(std::uint64_t first, std::span<std::uint64_t> indices) const {
  Group group;
  group.count = indices.size();
  for (std::size_t i = 0; i < group.count; ++i) {
    const auto [step, in_step] = by_global_batch_.Divide(first + i);
    // All parts of a full step have one length, so a division finds the part.
    const auto [part, in_part] = by_part_samples_.Divide(in_step);
    const bool is_full = step < full_steps_;
    const std::uint64_t node = is_full ? part : last_step_.Of(in_step);
    group.nodes[i] = node;
    group.places[i] =
        step * part_samples_ + (is_full ? in_part : in_step - last_step_.Begin(node));
  }
  PermuteWithinShares(group, lists_key_, Direction::kForward);
  Exchange(group, Direction::kForward);
  PermuteWithinShares(group, draws_key_, Direction::kForward);
  for (std::size_t i = 0; i < group.count; ++i) {
    indices[i] = shares_.Begin(group.nodes[i]) + group.places[i];
  }
  PermuteRuns(indices, Direction::kForward);
}

void PartialOrder::InverseGroup(std::span<std::uint64_t> values) const {
  Group group;
  group.count = values.size();
  PermuteRuns(values, Direction::kInverse);
  for (std::size_t i = 0; i < group.count; ++i) {
    group.nodes[i] = shares_.Of(values[i]);
    group.places[i] = values[i] - shares_.Begin(group.nodes[i]);
  }
  PermuteWithinShares(group, draws_key_, Direction::kInverse);
  Exchange(group, Direction::kInverse);
  PermuteWithinShares(group, lists_key_, Direction::kInverse);
  for (std::size_t i = 0; i < group.count; ++i) {
    const std::uint64_t node = group.nodes[i];
    // The entries that full steps leave of a list are read in the last step.
    const std::uint64_t step =
        std::min(by_part_samples_.Divide(group.places[i]).quotient, full_steps_);
    const std::uint64_t in_part = group.places[i] - step * part_samples_;
    const std::uint64_t part_begin =
        step < full_steps_ ? node * part_samples_ : last_step_.Begin(node);
    values[i] = step * global_batch_ + part_begin + in_part;
  }
}

// A single call is a group of one: four permutations cost more than the group's frame.
std::uint64_t PartialOrder::Forward(std::uint64_t position) const {
  std::uint64_t index = 0;
  ForwardGroup(position, {&index, 1});
  return index;
}

std::uint64_t PartialOrder::Inverse(std::uint64_t index) const {
  std::uint64_t position = index;
  InverseGroup({&position, 1});
  return position;
}

void PartialOrder::Forward(std::uint64_t first, std::span<std::uint64_t> indices) const {
  for (std::size_t done = 0; done < indices.size(); done += kPartialGroup) {
    ForwardGroup(first + done,
                 indices.subspan(done, std::min(kPartialGroup, indices.size() - done)));
  }
}

void PartialOrder::Inverse(std::span<std::uint64_t> values) const {
  for (std::size_t done = 0; done < values.size(); done += kPartialGroup) {
    InverseGroup(values.subspan(done, std::min(kPartialGroup, values.size() - done)));
  }
}

}  // namespace forebay
