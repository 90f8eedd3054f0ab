// Computes expected values in integers. A window of mode `block` has w runs of b consecutive
// samples, drawn from the whole epoch. One of them is in the extent (or the chunk), or nobody would
// ask for it; each further sample of the extent is in one of the other w - 1 runs with the share
// that these have of the rest of the epoch.
#include "server/plan/row_choice.h"

#include <algorithm>

#include "proto/contract/limits.h"

namespace forebay::plan {
namespace {

// Returns how many of `stored` consecutive samples all nodes together take while they need them.
std::uint64_t SamplesOfAllNodes(std::uint64_t stored, const ReadingShape& reading) {
  const std::uint64_t run = reading.order.block_samples;
  if (reading.order.mode == OrderMode::kSequential) return stored;
  if (run >= stored || run >= reading.sample_count) return stored;
  const std::uint64_t outside_run = reading.sample_count - run;
  const std::uint64_t other_runs = reading.order.window_runs - 1;
  // The comparison divides, because the product may not fit in 64 bits. Below, it fits, because
  // neither factor is larger than what an epoch or an extent may have.
  if (other_runs >= outside_run / run) return stored;
  return run + (stored - run) * (other_runs * run) / outside_run;
}

std::uint64_t StoredSamples(const TakenSamples& samples) {
  return std::clamp<std::uint64_t>(samples.stored, 1, limits::kSamplesPerExtentMax);
}

}  // namespace

bool TakesRuns(const ReadingShape& reading) {
  return reading.order.mode == OrderMode::kBlock || reading.order.mode == OrderMode::kSequential;
}

std::uint64_t SamplesInWindow(const TakenSamples& samples, const ReadingShape& reading) {
  if (!TakesRuns(reading)) return samples.of_batch;
  // Every rank takes its part of every batch, so a node with several ranks takes several parts.
  const std::uint64_t ranks_here = (reading.ranks + reading.nodes - 1) / reading.nodes;
  const std::uint64_t of_all = SamplesOfAllNodes(StoredSamples(samples), reading);
  return std::max(samples.of_batch, of_all * ranks_here / reading.ranks);
}

bool IsSentAsChunk(const TakenChunk& chunk, const ReadingShape& reading) {
  if (!TakesRuns(reading)) return false;
  const std::uint64_t rows =
      chunk.is_kept ? SamplesInWindow(chunk.samples, reading) : chunk.samples.of_batch;
  return chunk.chunk_bytes < rows * chunk.row_bytes;
}

bool IsCopied(const TakenExtent& extent, const ReadingShape& reading) {
  const std::uint64_t of_batch = std::max<std::uint64_t>(1, extent.samples.of_batch);
  const std::uint64_t in_window = std::max(of_batch, SamplesInWindow(extent.samples, reading));
  // The other batches of the window are taken to be like this one.
  const std::uint64_t rows = extent.row_bytes * in_window / of_batch;
  std::uint64_t chunks = extent.chunk_bytes * in_window / of_batch;
  std::uint64_t enough = extent.stored_bytes;
  if (chunks > 0) {
    enough -= enough / 8;
    if (extent.chunks_are_kept && TakesRuns(reading)) {
      // However many batches there are, no chunk of the window comes twice.
      const std::uint64_t stored = StoredSamples(extent.samples);
      const std::uint64_t all_once =
          extent.stored_bytes * SamplesOfAllNodes(stored, reading) / stored;
      chunks = std::max(extent.chunk_bytes, std::min(chunks, all_once));
    }
  }
  return rows + chunks >= enough;
}

}  // namespace forebay::plan
