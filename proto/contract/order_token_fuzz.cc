// Fuzz target: PositionToken, as it is and with its checksum made right so that the fields
// before it are reached. What parses is canonical.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/contract/order_token.h"

namespace forebay {
namespace {

// docs/order.md, section 8: the hash of all before it, under the tag "FBTOKEN1".
void Seal(std::vector<std::byte>& token) {
  constexpr std::uint64_t kTag = 0x314E'454B'4F54'4246ULL;
  if (token.size() != kPositionTokenBytes) return;
  const std::size_t body_bytes = token.size() - sizeof(std::uint64_t);
  const std::uint64_t sum = FoldWords(kTag, std::span(token).first(body_bytes));
  std::memcpy(token.data() + body_bytes, &sum, sizeof(sum));
}

void Check(const std::vector<std::byte>& bytes) {
  const auto token = PositionToken::Parse(bytes);
  if (token.has_value() && !std::ranges::equal(token->Encode(), bytes)) __builtin_trap();
}

}  // namespace
}  // namespace forebay

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto raw = std::as_bytes(std::span(data, size));
  std::vector<std::byte> token(raw.begin(), raw.end());
  forebay::Check(token);
  forebay::Seal(token);
  forebay::Check(token);
  return 0;
}
