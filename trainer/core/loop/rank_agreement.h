// One outcome for all ranks: an error of one rank ends every rank with the same message, instead of
// leaving the others in a collective call.
#pragma once

#include <cstddef>
#include <string>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"

namespace forebay::train {

// Returns OK if `own` is OK on every rank. Otherwise returns the error of the lowest rank that has
// one, on every rank, with that rank's number if there are several ranks. Long messages are cut.
// Collective; errors of the communicator are returned unchanged.
Status AgreeOn(const Status& own, Communicator& communicator);

// Returns rank 0's text or error on every rank; what the other ranks pass is ignored. At most
// kAgreedTextBytesMax bytes. Collective.
Result<std::string> FromRankZero(const Result<std::string>& own, Communicator& communicator);

inline constexpr std::size_t kAgreedTextBytesMax = 16'384;

}  // namespace forebay::train
