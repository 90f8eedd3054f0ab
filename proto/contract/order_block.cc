// Mode block(b, w). A *slot* is a place in the order of runs. The short run makes the arithmetic
// hard: it may take any slot, so its window is smaller by gap_samples, and all later windows start
// earlier. The code computes as if the short run were full, and corrects by the gap at the places
// after it. docs/order.md, section 4, has the same steps as formulas.
#include "proto/contract/order_block.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

// Elements that the batched forms handle together. It bounds their use of the stack, and short_at
// in Forward has one bit for each.
constexpr std::size_t kGroup = 64;

}  // namespace

BlockOrder::Geometry::Geometry(const BlockOrderOptions& options)
    : sample_count(options.sample_count),
      run_samples(std::min(options.block_samples, options.sample_count)),
      full_runs(sample_count / run_samples),
      short_samples(sample_count % run_samples),
      run_count(full_runs + (short_samples != 0 ? 1 : 0)),
      window_runs(std::min(options.window_runs, run_count)),
      full_windows(run_count / window_runs),
      gap_samples(short_samples != 0 ? run_samples - short_samples : 0),
      short_slot(short_samples != 0 ? MulHigh64(options.short_run_key, run_count) : kNone),
      short_window(short_samples != 0 ? short_slot / window_runs : kNone),
      after_short(kNone) {
  // In the last window nothing comes after the short run, so no position needs the correction.
  if (short_samples != 0 && (short_window + 1) * window_runs < run_count) {
    after_short = (short_window + 1) * window_runs * run_samples - gap_samples;
  }
}

BlockOrder::BlockOrder(const BlockOrderOptions& options)
    : geometry_(options),
      windows_key_(options.windows_key),
      by_run_samples_(geometry_.run_samples),
      by_window_runs_(geometry_.window_runs),
      by_window_samples_(geometry_.window_runs * geometry_.run_samples),
      full_window_(geometry_.window_runs * geometry_.run_samples),
      runs_(geometry_.full_runs, options.runs_key) {}

// The last window may have fewer than w runs; the short run's window lacks the gap.
std::uint64_t BlockOrder::WindowSamples(std::uint64_t window) const {
  const std::uint64_t first_slot = window * geometry_.window_runs;
  const std::uint64_t slots =
      std::min(geometry_.window_runs, geometry_.run_count - first_slot);
  return slots * geometry_.run_samples -
         (window == geometry_.short_window ? geometry_.gap_samples : 0);
}

inline std::uint64_t BlockOrder::WindowKey(std::uint64_t window) const {
  return Absorb64(windows_key_, window);
}

KeyedPermutation BlockOrder::WindowPermutation(std::uint64_t window) const {
  return KeyedPermutation(WindowSamples(window), WindowKey(window));
}

// All windows have one size, except the last and the short run's. Their shape is computed once.
inline FeistelShape BlockOrder::WindowShape(std::uint64_t window) const {
  if (window < geometry_.full_windows && window != geometry_.short_window) return full_window_;
  return FeistelShape(WindowSamples(window));
}

// Divides a position into a window and an offset in it. Adding the gap makes all windows before the
// position equally large.
inline BlockOrder::Place BlockOrder::PlaceOf(std::uint64_t position) const {
  // kNone is larger than any position, so without a short run no gap is added.
  const std::uint64_t gap = position >= geometry_.after_short ? geometry_.gap_samples : 0;
  const auto [window, offset] = by_window_samples_.Divide(position + gap);
  return {window, offset};
}

inline std::uint64_t BlockOrder::Unfold(std::uint64_t window, std::uint64_t offset) const {
  const Geometry& g = geometry_;
  const std::uint64_t first_slot = window * g.window_runs;
  if (window == g.short_window) {
    const std::uint64_t begin = (g.short_slot - first_slot) * g.run_samples;
    // After the short run, count as if it were full.
    if (offset >= begin + g.short_samples) offset += g.gap_samples;
  }
  return first_slot * g.run_samples + offset;
}

std::uint64_t BlockOrder::Forward(std::uint64_t position) const {
  const Geometry& g = geometry_;
  const Place place = PlaceOf(position);
  const std::uint64_t offset = KeyedPermutation::ForwardOnce(
      WindowShape(place.window), WindowKey(place.window), place.offset);
  const auto [slot, in_run] = by_run_samples_.Divide(Unfold(place.window, offset));
  // The short run is not part of the permutation of runs, so slots after it count one less.
  if (slot == g.short_slot) return g.full_runs * g.run_samples + in_run;
  return runs_.Forward(slot - (slot > g.short_slot ? 1 : 0)) * g.run_samples + in_run;
}

inline std::uint64_t BlockOrder::SlotOfRun(std::uint64_t run) const {
  if (run == geometry_.full_runs) return geometry_.short_slot;
  const std::uint64_t slot = runs_.Inverse(run);
  return slot + (slot >= geometry_.short_slot ? 1 : 0);
}

inline BlockOrder::Place BlockOrder::PlaceInSlot(std::uint64_t slot, std::uint64_t in_run) const {
  const Geometry& g = geometry_;
  const auto [window, slot_in_window] = by_window_runs_.Divide(slot);
  const bool behind_short = window == g.short_window && slot > g.short_slot;
  return {window, slot_in_window * g.run_samples + in_run - (behind_short ? g.gap_samples : 0)};
}

inline std::uint64_t BlockOrder::WindowStart(std::uint64_t window) const {
  const Geometry& g = geometry_;
  // kNone is above every window.
  return window * g.window_runs * g.run_samples -
         (window > g.short_window ? g.gap_samples : 0);
}

std::uint64_t BlockOrder::Inverse(std::uint64_t index) const {
  const auto [run, in_run] = by_run_samples_.Divide(index);
  const Place place = PlaceInSlot(SlotOfRun(run), in_run);
  return WindowStart(place.window) +
         KeyedPermutation::InverseOnce(WindowShape(place.window), WindowKey(place.window),
                                       place.offset);
}

void BlockOrder::Inverse(std::span<std::uint64_t> values) const {
  // Neighbours in the data set share a run and so a window: the slot of the last run is kept, and a
  // permutation is built once for all successive values of one window.
  std::uint64_t slot = kNone;
  std::uint64_t slot_run = kNone;
  const auto place_of = [&](std::uint64_t index) {
    const auto [run, in_run] = by_run_samples_.Divide(index);
    if (run != slot_run) slot = SlotOfRun(run);
    slot_run = run;
    return PlaceInSlot(slot, in_run);
  };
  std::size_t done = 0;
  while (done < values.size()) {
    const std::uint64_t window = place_of(values[done]).window;
    const KeyedPermutation permutation = WindowPermutation(window);
    const std::uint64_t start = WindowStart(window);
    bool same_window = true;
    while (same_window && done < values.size()) {
      const std::span<std::uint64_t> group =
          values.subspan(done, std::min(kGroup, values.size() - done));
      std::size_t count = 0;
      for (; count < group.size(); ++count) {
        const Place place = place_of(group[count]);
        same_window = place.window == window;
        if (!same_window) break;
        group[count] = place.offset;
      }
      permutation.Inverse(group.first(count));
      for (std::uint64_t& value : group.first(count)) value += start;
      done += count;
    }
  }
}

void BlockOrder::Forward(std::uint64_t first, std::span<std::uint64_t> indices) const {
  const Geometry& g = geometry_;
  std::array<std::uint64_t, kGroup> in_run;
  std::size_t done = 0;
  while (done < indices.size()) {
    const Place place = PlaceOf(first + done);
    const KeyedPermutation permutation = WindowPermutation(place.window);
    std::uint64_t offset = place.offset;
    while (done < indices.size() && offset < permutation.size()) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(
          {kGroup, indices.size() - done, permutation.size() - offset}));
      const std::span<std::uint64_t> group = indices.subspan(done, count);
      for (std::uint64_t& value : group) value = offset++;
      permutation.Forward(group);
      // The permutation of runs cannot take the short run, so a harmless 0 stands in for it. The
      // bits tell afterwards which elements belong to the short run.
      std::uint64_t short_at = 0;  // one bit per element of the group
      for (std::size_t i = 0; i < count; ++i) {
        const auto [slot, rest] = by_run_samples_.Divide(Unfold(place.window, group[i]));
        in_run[i] = rest;
        const bool is_short = slot == g.short_slot;
        short_at |= static_cast<std::uint64_t>(is_short) << i;
        group[i] = is_short ? 0 : slot - (slot > g.short_slot ? 1 : 0);
      }
      runs_.Forward(group);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t run = (short_at >> i & 1) != 0 ? g.full_runs : group[i];
        group[i] = run * g.run_samples + in_run[i];
      }
      done += count;
    }
  }
}

}  // namespace forebay
