// Damages a chunk of a pack, makes every checksum right, and reads the pack in every way there is.
#pragma once

#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "tests/difference/specimen.h"

namespace forebay::compress {

struct PackOutcome {
  std::optional<std::string> difference;  // the first one, in words
  std::optional<ErrorCode> error;  // of reading the damaged chunk's samples; none where it decodes
};

// Of `pack`, which is sound and not aligned. The rule is that of ReadWays, for samples of the field
// whose chunk it is; whatever lies elsewhere reads as before.
PackOutcome DamageAndRead(const std::vector<std::byte>& pack, const std::vector<Specimen>& others,
                          std::mt19937& random);

}  // namespace forebay::compress
