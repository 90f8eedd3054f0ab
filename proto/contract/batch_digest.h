// BatchDigest: the hash of a batch's name and samples. Daemon and client sum it over a stream;
// equal sums in the trailer prove that every batch arrived, with its samples and under its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/ids.h"

namespace forebay {

// The name of a batch as it was requested. `micro_size` is 0 for a rank's whole share of a
// step; `rank` is the rank that requested it.
struct BatchIdentity {
  EpochId epoch;
  StepId step;
  std::uint32_t micro_size = 0;
  std::uint32_t micro_index = 0;
  std::uint32_t rank = 0;
};

// XXH3-64 of `sample_ids` (as they lie in wire Batch.sample_ids: little-endian 64-bit words),
// seeded by the XXH3-64 of the identity packed as little-endian words: step u64, then epoch,
// micro_size, micro_index, rank u32. A trailer's checksum is the sum mod 2^64, so that it does
// not depend on the order in which batches are sent.
std::uint64_t BatchDigest(const BatchIdentity& identity, std::span<const std::byte> sample_ids);

}  // namespace forebay
