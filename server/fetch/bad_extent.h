// BadExtent: a copy of an extent that a batch could not use, and its error.
#pragma once

#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/piece_reader.h"
#include "server/tier/extent_cache.h"

namespace forebay::fetch {

struct BadExtent {
  tier::ExtentRef extent;
  Error error;  // with an errno if the device failed; without if the bytes were wrong
};

// Call when pieces could not be read; `extent_of(index)` returns the tier::ExtentRef of a failed
// read. Appends the copies that must be fetched again to `bad`. Returns the error for the batch's
// reader, in case fetching again does not help.
template <typename ExtentOf>
Error BlameCopies(std::span<const PieceFailure> failures, ExtentOf&& extent_of,
                  std::vector<BadExtent>& bad) {
  const Error* of_gfs = nullptr;
  for (const fetch::PieceFailure& failure : failures) {
    const tier::ExtentRef& extent = extent_of(failure.index);
    // A GFS call that failed has an errno and has been repeated for long enough already. Without an
    // errno, the bytes were wrong, or the object was not asked because it does not answer other
    // readers: then the batch waits for it without a thread.
    const bool is_final = extent->tier == tier::TierKind::kGfs &&
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

}  // namespace forebay::fetch
