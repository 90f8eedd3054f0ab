// Expands run lengths into a mask of one byte for each element (docs/pack_chunk.md, section 5). A
// mask coded as difference to the previous frame is then summed frame by frame. Called by
// coded_chunk.cc.
#include "compress/decode/chunk/mask_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "compress/format/damaged.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kShortRun = 64;

// Fills a run. Short runs, which are most, are written in steps of 16 bytes without a call; up to
// 15 bytes too many, which the next run overwrites.
void FillRun(std::uint8_t value, std::size_t length, std::span<std::uint8_t> rest) {
  if (length > kShortRun || rest.size() < kShortRun) {
    std::fill_n(rest.begin(), length, value);
    return;
  }
  std::array<std::uint8_t, 16> step;
  step.fill(value);
  for (std::size_t i = 0; i < length; i += step.size()) {
    std::memcpy(rest.data() + i, step.data(), step.size());
  }
}

// Flips elements that are set one period before. Goes frame by frame, so that a loop never reads
// what it has just written, and can be vectorised.
void FlipByPrevious(std::size_t period, std::span<std::uint8_t> mask) {
  for (std::size_t begin = period; begin < mask.size(); begin += period) {
    const std::size_t count = std::min(period, mask.size() - begin);
    std::uint8_t* __restrict const here = mask.data() + begin;
    const std::uint8_t* __restrict const before = here - period;
    for (std::size_t i = 0; i < count; ++i) {
      here[i] = static_cast<std::uint8_t>(here[i] ^ before[i]);
    }
  }
}

}  // namespace

Status ExpandRuns(std::span<const std::byte> runs, std::size_t elements, std::size_t period,
                  std::span<std::uint8_t> mask) {
  FOREBAY_CHECK(mask.size() <= elements);
  ByteReader reader(runs);
  std::size_t at = 0;
  std::uint8_t value = 0;
  // Runs behind the wanted elements are checked, too: whether a mask is sound must not depend on
  // how much of it is wanted.
  while (at < elements) {
    const std::uint64_t length = reader.ReadVarint();
    // Only the first run may be empty, so that the loop ends.
    if (!reader.ok() || length > elements - at || (length == 0 && at > 0)) {
      return Damaged("mask", "the runs do not end with the elements");
    }
    if (length == 0 && value == 1) return Damaged("mask", "a run is empty");
    if (at < mask.size()) {
      FillRun(value, std::min<std::size_t>(length, mask.size() - at), mask.subspan(at));
    }
    at += length;
    value ^= 1;
  }
  if (reader.remaining() != 0) return Damaged("mask", "there are bytes behind the last run");
  if (period > 0) FlipByPrevious(period, mask);
  return {};
}

}  // namespace forebay::compress
