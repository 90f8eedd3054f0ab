// PieceReader: reads pieces of extents from SSD, or from the GFS where an extent lies on no tier,
// many at a time, and verifies each against the checksum taken when its bytes first came off the
// GFS (promise P1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_cache.h"

namespace forebay::fetch {

// One piece to read. `memory` is page-aligned and AlignedBytes(piece) long; the piece's bytes
// then lie at memory[LeadBytes(piece)].
struct PieceRead {
  const tier::ResidentExtent* extent = nullptr;  // on kSsd or kGfs
  catalog::Range piece;                          // one of Catalog::Pieces, whole
  std::uint64_t checksum = 0;
  std::span<std::byte> memory;
};

// Direct reads begin and end on device blocks: how many bytes come before the piece, and how
// many are read in all.
std::uint64_t LeadBytes(const catalog::Range& piece);
std::uint64_t AlignedBytes(const catalog::Range& piece);

struct PieceFailure {
  std::size_t index = 0;  // of the read
  Error error;            // kDataLoss: the bytes are wrong or the device failed
};

// Performs all reads, keeping the queue as full as its depth allows. Failures of single pieces
// are appended to `failures` and do not stop the others; the Status is the queue's own.
Status ReadPieces(io::IoQueue& queue, std::span<const PieceRead> reads,
                  std::vector<PieceFailure>& failures);

}  // namespace forebay::fetch
