// RowChoice: whether the samples of a compressed extent that another node has come to this node as
// decoded rows, or as a copy of the extent: whichever is fewer bytes for what the readers of this
// node take of it in a window of their order.
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

// An extent, and what one batch takes of it.
struct CompressedExtent {
  std::uint64_t stored_bytes = 0;   // what a copy takes
  std::uint64_t decoded_bytes = 0;  // of all its samples
  std::uint64_t sample_count = 0;
  std::uint64_t batch_bytes = 0;    // decoded, of the samples that the batch takes
};

// Returns the bytes of rows that the readers of one node take of the extent while it is of use: in
// mode `block` in the window that has it now, in mode `sequential` in one pass over it, and in the
// other modes in one batch, because nothing says that the next batches need the extent again. This
// is an expected value, and never less than batch_bytes.
std::uint64_t RowBytesInWindow(const CompressedExtent& extent, const ReadingShape& reading);

// Whether that is less than a copy of the extent takes.
inline bool TravelsAsRows(const CompressedExtent& extent, const ReadingShape& reading) {
  return RowBytesInWindow(extent, reading) < extent.stored_bytes;
}

}  // namespace forebay::plan
