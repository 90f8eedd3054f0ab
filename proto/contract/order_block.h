// BlockOrder: mode block(b, w) of OrderSpec v1 (docs/order.md, section 4).
//
// [0, n) is cut into runs of b indices; the last may be short. The runs are put into a
// pseudo-random order, each w successive runs form a window, and the samples of a window are
// permuted. So a reader needs at most w runs at a time, wherever extents begin and end.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "proto/contract/order_divider.h"
#include "proto/contract/order_permutation.h"

namespace forebay {

struct BlockOrderOptions {
  std::uint64_t sample_count = 0;   // n: [1, 2^40]
  std::uint64_t block_samples = 0;  // b: [1, 2^40]
  std::uint64_t window_runs = 0;    // w: [1, 2^40]
  std::uint64_t runs_key = 0;       // orders the full runs
  std::uint64_t short_run_key = 0;  // places the short run among them
  std::uint64_t windows_key = 0;    // orders the samples within windows
};

// An immutable value; thread-safe; constant time; allocates nothing. Arguments are below n.
class BlockOrder {
 public:
  explicit BlockOrder(const BlockOrderOptions& options);

  std::uint64_t Forward(std::uint64_t position) const;
  std::uint64_t Inverse(std::uint64_t index) const;
  // Sets indices[i] = Forward(first + i). Much faster than single calls, because a window's keys
  // are derived once per window.
  void Forward(std::uint64_t first, std::span<std::uint64_t> indices) const;
  // In place: an index becomes its position. Much faster than single calls if neighbours in
  // `values` are neighbours in the data set, as the samples of an extent are.
  void Inverse(std::span<std::uint64_t> values) const;

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  struct Place {
    std::uint64_t window;
    std::uint64_t offset;  // in samples, within the window
  };
  struct Geometry {
    explicit Geometry(const BlockOrderOptions& options);
    std::uint64_t sample_count;    // n
    std::uint64_t run_samples;     // b, at most n
    std::uint64_t full_runs;       // q
    std::uint64_t short_samples;   // t, of the short last run; 0: there is none
    std::uint64_t run_count;       // m
    std::uint64_t window_runs;     // w, at most m
    std::uint64_t full_windows;    // windows of w runs, as if the short run were full
    std::uint64_t gap_samples;     // b - t, or 0 if there is no short run
    std::uint64_t short_slot;      // s, or kNone
    std::uint64_t short_window;    // s / w, or kNone
    std::uint64_t after_short;     // first position after the short run's window, or kNone
  };

  KeyedPermutation WindowPermutation(std::uint64_t window) const;
  std::uint64_t WindowKey(std::uint64_t window) const;
  FeistelShape WindowShape(std::uint64_t window) const;
  std::uint64_t WindowSamples(std::uint64_t window) const;
  Place PlaceOf(std::uint64_t position) const;
  std::uint64_t SlotOfRun(std::uint64_t run) const;
  Place PlaceInSlot(std::uint64_t slot, std::uint64_t in_run) const;
  std::uint64_t WindowStart(std::uint64_t window) const;
  // Turns an offset within a window, in the order of runs, into run slot * b + offset in the
  // run, as if the short run were full.
  std::uint64_t Unfold(std::uint64_t window, std::uint64_t offset) const;

  Geometry geometry_;
  std::uint64_t windows_key_;
  InvariantDivider by_run_samples_;
  InvariantDivider by_window_runs_;
  InvariantDivider by_window_samples_;
  FeistelShape full_window_;  // of w full runs
  KeyedPermutation runs_;     // of the full runs
};

}  // namespace forebay
