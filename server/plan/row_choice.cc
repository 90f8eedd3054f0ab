// Computes expected values in integers. A window of mode `block` has w runs of b consecutive
// samples, drawn from the whole epoch. One of them is in the extent, or nobody would ask for it;
// each further sample of the extent is in one of the other w - 1 runs with the share that these
// have of the rest of the epoch.
#include "server/plan/row_choice.h"

#include <algorithm>

#include "proto/contract/limits.h"

namespace forebay::plan {
namespace {

std::uint64_t SamplesInWindow(std::uint64_t in_extent, const ReadingShape& reading) {
  const std::uint64_t run = reading.order.block_samples;
  if (run >= in_extent || run >= reading.sample_count) return in_extent;
  const std::uint64_t outside_run = reading.sample_count - run;
  const std::uint64_t other_runs = reading.order.window_runs - 1;
  // The comparison divides, because the product may not fit in 64 bits. Below, it fits, because
  // neither factor is larger than what an epoch or an extent may have.
  if (other_runs >= outside_run / run) return in_extent;
  return run + (in_extent - run) * (other_runs * run) / outside_run;
}

}  // namespace

std::uint64_t RowBytesInWindow(const CompressedExtent& extent, const ReadingShape& reading) {
  const OrderMode mode = reading.order.mode;
  if (mode != OrderMode::kBlock && mode != OrderMode::kSequential) return extent.batch_bytes;
  const std::uint64_t in_extent =
      std::clamp<std::uint64_t>(extent.sample_count, 1, limits::kSamplesPerExtentMax);
  const std::uint64_t samples =
      mode == OrderMode::kBlock ? SamplesInWindow(in_extent, reading) : in_extent;
  // Every rank takes its part of every batch, so a node with several ranks takes several parts.
  const std::uint64_t ranks_here = (reading.ranks + reading.nodes - 1) / reading.nodes;
  const std::uint64_t of_window = extent.decoded_bytes / in_extent * samples;
  return std::max(extent.batch_bytes, of_window / reading.ranks * ranks_here);
}

}  // namespace forebay::plan
