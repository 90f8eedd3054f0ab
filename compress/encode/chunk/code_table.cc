// Makes the codes of a chunk dense, so that they fit fewer and narrower planes: subtracts the
// smallest, drops low bits that are never set, and replaces values by their rank in a dictionary
// where the estimate says that this is smaller. Called by coded_chunk_encoder.cc once the masks are
// known.
#include "compress/encode/chunk/code_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/chunk/plane_streams.h"
#include "compress/format/chunk/chunk_header.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

// A hash set with open addressing that gives up beyond kDictionaryMax numbers.
class BoundedSet {
 public:
  // False when there were too many.
  bool Add(std::uint64_t value) {
    // Fibonacci hashing; the table is four times as large as what it may hold.
    std::size_t slot = (value * 0x9E37'79B9'7F4A'7C15ULL) >> (64 - kSlotBits);
    while (used_[slot] != 0 && values_[slot] != value) slot = (slot + 1) % kSlots;
    if (used_[slot] != 0) return true;
    if (count_ == kDictionaryMax) return false;
    used_[slot] = 1;
    values_[slot] = value;
    ++count_;
    return true;
  }

  std::vector<std::uint64_t> Sorted() const {
    std::vector<std::uint64_t> sorted;
    sorted.reserve(count_);
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (used_[slot] != 0) sorted.push_back(values_[slot]);
    }
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

 private:
  static constexpr std::size_t kSlotBits = 18, kSlots = std::size_t{1} << kSlotBits;
  // A value may be any number, 0 included, so another array says which slots are in use.
  std::vector<std::uint64_t> values_ = std::vector<std::uint64_t>(kSlots);
  std::vector<std::uint8_t> used_ = std::vector<std::uint8_t>(kSlots);
  std::uint32_t count_ = 0;
};

// In ascending order; nothing where there are too many for a dictionary.
std::optional<std::vector<std::uint64_t>> ValuesOf(std::span<const std::uint64_t> codes,
                                                   std::uint32_t bits) {
  if (bits <= 16) {
    std::vector<std::uint8_t> seen(std::size_t{1} << bits);
    for (const std::uint64_t code : codes) seen[code] = 1;
    std::vector<std::uint64_t> values;
    for (std::size_t value = 0; value < seen.size(); ++value) {
      if (seen[value] != 0) values.push_back(value);
    }
    static_assert(kDictionaryMax >= 1U << 16);
    return values;
  }
  BoundedSet set;
  // Runs of equal codes are common and need no look-up.
  std::uint64_t last = ~codes[0];
  for (const std::uint64_t code : codes) {
    if (code == last) continue;
    last = code;
    if (!set.Add(code)) return std::nullopt;
  }
  return set.Sorted();
}

std::vector<std::byte> DictionaryBytes(std::span<const std::uint64_t> values) {
  ByteWriter writer;
  for (std::size_t i = 0; i < values.size(); ++i) {
    writer.Varint(i == 0 ? values[0] : values[i] - values[i - 1] - 1);
  }
  return writer.Release();
}

// Replaces codes by ranks if dictionary and ranks together are estimated smaller than the codes.
// Sets `table` accordingly.
void TryDictionary(const ChunkGeometry& geometry, std::size_t width, std::size_t share_min,
                   CodeTable& table, std::span<std::uint64_t> codes) {
  const auto values = ValuesOf(codes, table.bits);
  if (!values.has_value()) return;
  const auto count = static_cast<std::uint32_t>(values->size());
  const auto rank_bits = static_cast<std::uint32_t>(std::bit_width(count - 1));
  // Ranks that are as wide as the codes save no bits, and a dictionary costs time to decode.
  if (rank_bits >= table.bits) return;
  std::vector<std::byte> dictionary = DictionaryBytes(*values);
  // The same bound as the decoder's.
  if (dictionary.size() > codes.size() * width / 8) return;
  std::vector<std::uint64_t> ranks(codes.size());
  if (table.bits <= 16) {
    std::vector<std::uint16_t> rank_of(std::size_t{1} << table.bits);
    for (std::size_t rank = 0; rank < count; ++rank) {
      rank_of[(*values)[rank]] = static_cast<std::uint16_t>(rank);
    }
    for (std::size_t i = 0; i < codes.size(); ++i) ranks[i] = rank_of[codes[i]];
  } else {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      ranks[i] = static_cast<std::uint64_t>(
          std::lower_bound(values->begin(), values->end(), codes[i]) - values->begin());
    }
  }
  // The dictionary is small enough to compress for its size; planes are only estimated.
  const std::size_t stored = EncodeSideStream(dictionary, 19).body.size();
  std::size_t bearable = EstimateCodeBytes(geometry, table.bits, codes);
  // Ranks of one byte in place of two are quicker to decode, not slower.
  const bool narrows = table.bits > 8 && rank_bits <= 8;
  if (share_min > 0 && table.bits <= 16 && !narrows) bearable -= bearable / share_min;
  if (stored + EstimateCodeBytes(geometry, rank_bits, ranks) >= bearable) return;
  std::copy(ranks.begin(), ranks.end(), codes.begin());
  table.bits = rank_bits;
  table.dictionary_count = count;
  table.dictionary = std::move(dictionary);
}

}  // namespace

CodeTable ChooseCodeTable(const ChunkGeometry& geometry, std::size_t width,
                          std::size_t share_min, std::span<std::uint64_t> codes) {
  CodeTable table;
  // A chunk has at least one element, so both exist.
  const auto [low, high] = std::minmax_element(codes.begin(), codes.end());
  table.offset = *low;
  const std::uint64_t range = *high - *low;
  std::uint64_t seen = 0;
  for (const std::uint64_t code : codes) seen |= code - table.offset;
  if (range > 0) table.shift = static_cast<std::uint8_t>(std::countr_zero(seen));
  table.bits = static_cast<std::uint32_t>(std::bit_width(range >> table.shift));
  // An offset that saves no bit only keeps the planes from being the elements themselves.
  if (table.shift == 0 && static_cast<std::uint32_t>(std::bit_width(range + table.offset)) ==
                              table.bits) {
    table.offset = 0;
  }
  if (table.offset != 0 || table.shift != 0) {
    for (std::uint64_t& code : codes) code = (code - table.offset) >> table.shift;
  }
  if (table.bits > 1) TryDictionary(geometry, width, share_min, table, codes);
  return table;
}

}  // namespace forebay::compress
