// The id of a pack: 16 bytes in its header that distinguish it from every other pack
// (docs/pack.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::compress {

// Random, or given by the caller so that a pack can be written again byte for byte. All checksums
// of a pack depend on it, so that a record of one pack is refused in another.
using PackId = std::array<std::byte, 16>;

// Converts an id to 32 lower-case hexadecimal digits, and back. Errors: kInvalidArgument, with the
// text.
std::string PackIdHex(const PackId& id);
Result<PackId> ParsePackId(std::string_view hex);

// The id of a shard of a set whose id was given: the beginning of the SHA-256 of the set's id, the
// generation that adds the shard, and the shard's number in that generation.
PackId ShardId(const PackId& set, std::uint64_t generation, std::uint64_t number);

}  // namespace forebay::compress
