#include "compress/decode/mask_decoder.h"

#include <algorithm>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {

Status ExpandRuns(std::span<const std::byte> runs, std::size_t elements, std::size_t period,
                  std::span<std::uint8_t> mask) {
  FOREBAY_CHECK(mask.size() <= elements);
  ByteReader reader(runs);
  std::size_t at = 0;
  std::uint8_t value = 0;
  while (at < mask.size()) {
    const std::uint64_t length = reader.ReadVarint();
    // Only the first run may be empty, so that the loop ends.
    if (!reader.ok() || length > elements - at || (length == 0 && at > 0)) {
      return Error(ErrorCode::kDataLoss, "mask: its runs do not add up");
    }
    if (length == 0 && value == 1) return Error(ErrorCode::kDataLoss, "mask: an empty run");
    const std::size_t fill = std::min<std::size_t>(length, mask.size() - at);
    std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(at), fill, value);
    at += fill;
    value ^= 1;
  }
  if (period > 0) {
    for (std::size_t i = period; i < mask.size(); ++i) {
      mask[i] = static_cast<std::uint8_t>(mask[i] ^ mask[i - period]);
    }
  }
  return {};
}

}  // namespace forebay::compress
