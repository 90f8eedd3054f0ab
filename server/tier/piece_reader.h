// ReadPieces: reads pieces of extents from SSD, or from the GFS if an extent lies on no tier, many
// at a time. Verifies each against the checksum that was taken when its bytes were first read from
// the GFS (docs/design.md, P1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_cache.h"

namespace forebay::tier {

// One piece to read. `memory` is page-aligned and AlignedBytes(piece) long; the piece's bytes
// then lie at memory[LeadBytes(piece)].
struct PieceRead {
  const ResidentExtent* extent = nullptr;  // on kSsd or kGfs
  catalog::Range piece;                    // one of Catalog::Pieces, whole
  std::uint64_t checksum = 0;
  std::span<std::byte> memory;
};

// Direct reads begin and end on device blocks. LeadBytes: the bytes that are read before the piece.
// AlignedBytes: all bytes that are read.
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

// A copy of an extent that a batch could not use.
struct BadExtent {
  ExtentRef extent;
  Error error;  // with an errno if the device failed; without if the bytes were wrong
};

// Call when pieces could not be read; `extent_of(index)` returns the ExtentRef of a failed
// read. Appends the copies that must be fetched again to `bad`. Returns the error for the batch's
// reader, in case fetching again does not help.
template <typename ExtentOf>
Error BlameCopies(std::span<const PieceFailure> failures, ExtentOf&& extent_of,
                  std::vector<BadExtent>& bad) {
  const Error* of_gfs = nullptr;
  for (const PieceFailure& failure : failures) {
    const ExtentRef& extent = extent_of(failure.index);
    // A GFS call that failed has an errno and has been repeated for long enough already. Without an
    // errno, the bytes were wrong, or the object was not asked because it does not answer other
    // readers: then the batch waits for it without a thread.
    const bool is_final = extent->tier == TierKind::kGfs &&
                          (failure.error.system_errno() != 0 ||
                           failure.error.code() == ErrorCode::kFailedPrecondition);
    if (!is_final) {
      bad.push_back({extent, failure.error});
    } else if (of_gfs == nullptr) {
      of_gfs = &failure.error;
    }
  }
  // The GFS's error code says whether asking again may help; a copy on a tier is lost in any case.
  if (of_gfs != nullptr) return *of_gfs;
  return Error(ErrorCode::kDataLoss, failures.front().error.message());
}

}  // namespace forebay::tier
