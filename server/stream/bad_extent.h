// BadExtent: a copy on a tier that a batch could not use, and what was wrong with it.
#pragma once

#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/piece_reader.h"
#include "server/tier/extent_cache.h"

namespace forebay::stream {

struct BadExtent {
  tier::ExtentRef extent;
  Error error;  // with an errno where the device failed; else the bytes were wrong
};

// Pieces could not be read; `extent_of(index)` is the tier::ExtentRef of a failed one. Copies that
// are to be fetched anew are appended to `bad`. Returns what the batch's reader is told, should
// that not help.
template <typename ExtentOf>
Error BlameCopies(std::span<const fetch::PieceFailure> failures, ExtentOf&& extent_of,
                  std::vector<BadExtent>& bad) {
  const Error* of_gfs = nullptr;
  for (const fetch::PieceFailure& failure : failures) {
    const tier::ExtentRef& extent = extent_of(failure.index);
    // What a call to the GFS failed with has an errno, and was tried again for long enough already.
    // Without one, bytes were wrong, or an object that does not answer others was not asked: then
    // the batch waits for it without a thread.
    const bool is_final = extent->tier == tier::TierKind::kGfs &&
                          (failure.error.system_errno() != 0 ||
                           failure.error.code() == ErrorCode::kFailedPrecondition);
    if (!is_final) {
      bad.push_back({extent, failure.error});
    } else if (of_gfs == nullptr) {
      of_gfs = &failure.error;
    }
  }
  // The GFS's code says whether asking again may help; a copy on a tier is lost in any case.
  if (of_gfs != nullptr) return *of_gfs;
  return Error(ErrorCode::kDataLoss, failures.front().error.message());
}

}  // namespace forebay::stream
