// RowChoice: how samples of a compressed extent that another node has come to this node: as rows,
// which their owner decodes; as chunks of a pack, or with a copy of the extent, which this node
// decodes. Whichever is fewest bytes for what the readers of this node take while they need the
// extent: in mode `block` in the window that has it now, in mode `sequential` in one pass over it,
// and in the other modes in one batch, because nothing says that the next batches need it again.
#pragma once

#include <cstdint>

#include "proto/contract/order_spec.h"

namespace forebay::plan {

// How the samples of an epoch are divided among the readers.
struct ReadingShape {
  OrderShape order;
  std::uint64_t sample_count = 0;  // of an epoch
  std::uint64_t ranks = 1;
  std::uint64_t nodes = 1;         // over which the ranks are spread evenly
};

// Whether several batches take samples that are stored together while they are needed: modes
// `block` and `sequential`.
bool TakesRuns(const ReadingShape& reading);

// Samples that are stored together, in an extent or in a chunk, and how many of them one batch
// takes: at least one.
struct TakenSamples {
  std::uint64_t stored = 0;
  std::uint64_t of_batch = 0;
};

// Returns how many of the samples the readers of one node take while they need them. This is an
// expected value, and never less than `of_batch`.
std::uint64_t SamplesInWindow(const TakenSamples& samples, const ReadingShape& reading);

// A chunk, or all chunks that are decoded together, of a field of fixed size.
struct TakenChunk {
  TakenSamples samples;
  std::uint64_t row_bytes = 0;    // of one sample, decoded
  std::uint64_t chunk_bytes = 0;  // as stored
  // Whether the samples are kept once they are decoded, so that the readers of this node get the
  // chunk once. Otherwise each batch gets it.
  bool is_kept = false;
};

// Whether the chunk is fewer bytes than its rows. False in modes `global` and `partial`: there a
// batch takes one sample of most of its chunks, and every node would decode all the others.
bool IsSentAsChunk(const TakenChunk& chunk, const ReadingShape& reading);

// An extent, and what the samples that a batch takes of it cost without a copy.
struct TakenExtent {
  TakenSamples samples;
  std::uint64_t stored_bytes = 0;  // what a copy takes
  std::uint64_t row_bytes = 0;     // of the samples that come as rows
  std::uint64_t chunk_bytes = 0;   // of the chunks that come as such
  bool chunks_are_kept = false;    // TakenChunk::is_kept
};

// Whether a copy of the extent is no more bytes than its rows and chunks are. Chunks have to be an
// eighth fewer: a copy also serves later windows, as long as a tier keeps it.
bool IsCopied(const TakenExtent& extent, const ReadingShape& reading);

}  // namespace forebay::plan
