// One outcome for all ranks: an error that one of them met ends every rank with the same words,
// instead of leaving the others in a collective call.
#pragma once

#include <cstddef>
#include <string>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"

namespace forebay::train {

// OK where `own` is so on every rank; otherwise on every rank the error of the lowest rank that has
// one, with that rank's number where there are several. Long messages are cut. Collective; errors
// of the communicator come out as they are.
Status AgreeOn(const Status& own, Communicator& communicator);

// Rank 0's text or error, on every rank; what the others pass counts for nothing. At most
// kAgreedTextBytesMax bytes. Collective.
Result<std::string> FromRankZero(const Result<std::string>& own, Communicator& communicator);

inline constexpr std::size_t kAgreedTextBytesMax = 16'384;

}  // namespace forebay::train
