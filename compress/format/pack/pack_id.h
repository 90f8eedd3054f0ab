// What tells a pack from every other: 16 bytes in its header (docs/pack.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::compress {

// Random, or given where a pack is to be written again byte for byte. All checksums of a pack
// depend on it, so that no record of one pack passes for a record of another.
using PackId = std::array<std::byte, 16>;

// As 32 hexadecimal digits, lower case; and back. Errors: kInvalidArgument, naming the text.
std::string PackIdHex(const PackId& id);
Result<PackId> ParsePackId(std::string_view hex);

// The id of a shard where the id of a whole set is given: the beginning of the SHA-256 of the
// set's, the generation that adds the shard and its number among those added.
PackId ShardId(const PackId& set, std::uint64_t generation, std::uint64_t number);

}  // namespace forebay::compress
