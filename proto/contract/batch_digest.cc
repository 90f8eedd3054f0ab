// Hashes the sample ids with the hash of the batch's name as the seed, so that a batch that is
// delivered under another name changes the sum too. The daemon's sessions and the client's streams
// call it.
#include "proto/contract/batch_digest.h"

#include <bit>
#include <type_traits>

#include "proto/contract/xxh3.h"

namespace forebay {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the identity is hashed in its little-endian form");

// The words that are hashed, in this order. It has no padding, whose bytes would be undefined.
struct PackedIdentity {
  std::uint64_t step;
  std::uint32_t epoch;
  std::uint32_t micro_size;
  std::uint32_t micro_index;
  std::uint32_t rank;
};
static_assert(sizeof(PackedIdentity) == 24 &&
              std::has_unique_object_representations_v<PackedIdentity>);

}  // namespace

std::uint64_t BatchDigest(const BatchIdentity& identity, std::span<const std::byte> sample_ids) {
  const PackedIdentity packed = {.step = identity.step.value(),
                                 .epoch = identity.epoch.value(),
                                 .micro_size = identity.micro_size,
                                 .micro_index = identity.micro_index,
                                 .rank = identity.rank};
  return XXH3_64bits_withSeed(sample_ids.data(), sample_ids.size(),
                              XXH3_64bits(&packed, sizeof(packed)));
}

}  // namespace forebay
