// The id of a pack as text, and the ids of a set's shards, which follow from the set's id by
// SHA-256, so that a set that is written again has the same shards.
#include "compress/format/pack/pack_id.h"

#include <algorithm>

#include "compress/format/pack/sha256.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string PackIdHex(const PackId& id) {
  std::string hex;
  for (const std::byte byte : id) {
    hex += kDigits[std::to_integer<std::size_t>(byte) >> 4];
    hex += kDigits[std::to_integer<std::size_t>(byte) & 15];
  }
  return hex;
}

// Accepts capitals, too, because people copy ids from other tools; it writes small letters only.
Result<PackId> ParsePackId(std::string_view hex) {
  PackId id{};
  bool valid = hex.size() == 2 * id.size();
  for (std::size_t i = 0; valid && i < hex.size(); ++i) {
    const char digit = hex[i] >= 'A' && hex[i] <= 'F' ? static_cast<char>(hex[i] + 32) : hex[i];
    const std::size_t value = kDigits.find(digit);
    // The result is used only if all digits are valid: an invalid one leaves the id half built.
    valid = value != std::string_view::npos;
    if (valid) id[i / 2] = id[i / 2] << 4 | static_cast<std::byte>(value);
  }
  if (valid) return id;
  return Error(ErrorCode::kInvalidArgument,
               "'" + std::string(hex.substr(0, 64)) + "' is no id of a pack: wanted are 32 "
               "hexadecimal digits");
}

PackId ShardId(const PackId& set, std::uint64_t generation, std::uint64_t number) {
  ByteWriter words;
  words.Bytes(set);
  words.Le(generation);
  words.Le(number);
  const Sha256Digest digest = Sha256(words.bytes());
  PackId id{};
  // The first 16 of the 32 bytes of the digest, far more than it takes to keep shards apart.
  std::copy_n(digest.begin(), id.size(), id.begin());
  return id;
}

}  // namespace forebay::compress
