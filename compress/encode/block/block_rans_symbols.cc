// The entropy stage of the block-rANS encoder: rANS (J. Duda, arXiv:1311.2540) in 64 lanes that
// share a stream of bytes (F. Giesen, arXiv:1402.3392). Blocks are coded from the last to the
// first, and lanes from the last to the first, so that the decoder reads forwards. Low bits and
// escapes do not pass through rANS; they are written to sections of their own, in the decoder's
// order.
#include "compress/encode/block/block_rans_symbols.h"

#include <algorithm>
#include <array>
#include <bit>

namespace forebay::compress {
namespace {

constexpr unsigned kInverseBits = 24;

// 2^24 / frequency, rounded up: exact quotients of states below 2^16.
constexpr std::array<std::uint32_t, kBlockRansSlots> kInverses = [] {
  std::array<std::uint32_t, kBlockRansSlots> inverses{};
  for (std::uint32_t i = 1; i < inverses.size(); ++i) {
    inverses[i] = ((1U << kInverseBits) + i - 1) / i;
  }
  return inverses;
}();

// What coding a token takes: the slots, and the inverse of their number.
struct Symbol {
  std::uint32_t inverse = 0;
  std::uint16_t first = 0;
  std::uint8_t frequency = 0;
  bool escape = false;
};

// A class's tokens, and the escape in place of those that have no slots.
struct Symbols {
  std::array<Symbol, kBlockRansSlots> tokens;
  Symbol escape;
  std::uint32_t shift = 0;

  explicit Symbols(const BlockRansTable& table) : shift(table.shift) {
    escape = {.inverse = kInverses[table.escape_slots],
              .first = static_cast<std::uint16_t>(table.escape_slots_at()),
              .frequency = table.escape_slots,
              .escape = true};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::uint8_t frequency = table.frequency[i];
      tokens[i] = frequency == 0 ? escape
                                 : Symbol{.inverse = kInverses[frequency],
                                          .first = table.first[i],
                                          .frequency = frequency};
    }
  }

  Symbol Of(std::int32_t residual) const {
    std::uint8_t token = 0;
    return BlockRansTokenOf(residual, shift, token) ? tokens[token] : escape;
  }
};

void PutLe(std::uint64_t value, std::size_t bytes, std::vector<std::byte>& to) {
  for (std::size_t i = 0; i < bytes; ++i, value >>= 8) {
    to.push_back(static_cast<std::byte>(value & 0xFF));
  }
}

// Eight lanes' low or high bytes, the first one's lowest.
std::uint64_t EightBytes(const std::int16_t* residuals, unsigned shift) {
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < 8; ++i) {
    const auto value = static_cast<std::uint16_t>(residuals[i]);
    bytes |= std::uint64_t{static_cast<std::uint8_t>(value >> shift)} << (8 * i);
  }
  return bytes;
}

// A bit of each lane.
std::uint64_t PlaneOf(const BlockRansResiduals& residuals, std::uint32_t plane) {
  std::uint64_t word = 0;
  for (std::size_t lane = 0; lane < kBlockRansLanes; lane += 8) {
    const std::uint64_t bytes = EightBytes(&residuals[lane], plane < 8 ? 0 : 8);
    const std::uint64_t bits = bytes >> (plane % 8) & 0x0101'0101'0101'0101;
    // The product gathers bit 8i at bit 56 + i; no two terms meet.
    word |= (bits * 0x0102'0408'1020'4080 >> 56) << lane;
  }
  return word;
}

// `escaped` has a bit for each lane that escapes.
void PutPlanesAndEscapes(const BlockRansResiduals& residuals, std::uint32_t bits,
                         std::uint32_t shift, std::uint64_t escaped, BlockRansSections& out) {
  for (std::uint64_t rest = escaped; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
    const auto value = static_cast<std::uint32_t>(residuals[lane]) & ((1U << bits) - 1);
    PutLe(value, bits <= 8 ? 1 : 2, out.escapes);
  }
  for (std::uint32_t plane = 0; plane < shift; ++plane) {
    PutLe(PlaneOf(residuals, plane) & ~escaped, sizeof(std::uint64_t), out.planes);
  }
}

// Bytes of all blocks, written from the last one to the first and each block's from the last lane
// to the first.
class WordWriter {
 public:
  explicit WordWriter(std::size_t bytes_max) : bytes_(bytes_max), at_(bytes_max) {
    states_.fill(kBlockRansStateMin);
  }

  // Returns which lanes escape.
  std::uint64_t Block(const BlockRansResiduals& residuals, const Symbols& symbols) {
    std::uint64_t escaped = 0;
    std::byte* to = bytes_.data() + at_;
    for (std::uint32_t lane = kBlockRansLanes; lane-- > 0;) {
      const Symbol symbol = symbols.Of(residuals[lane]);
      std::uint32_t state = states_[lane];
      // A byte leaves the state where the state would outgrow 16 bits. Arithmetic in place of a
      // branch, because a processor cannot predict it.
      const std::uint32_t full = state >= std::uint32_t{symbol.frequency} << 8 ? 1 : 0;
      to[-1] = static_cast<std::byte>(state & 0xFF);
      to -= full;
      state >>= 8 * full;
      // state / frequency by the inverse, exactly: states are below 2^16 here.
      const auto quotient =
          static_cast<std::uint32_t>(std::uint64_t{state} * symbol.inverse >> kInverseBits);
      states_[lane] = (quotient << 8) + symbol.first + (state - quotient * symbol.frequency);
      escaped = escaped << 1 | (symbol.escape ? 1 : 0);
    }
    at_ = static_cast<std::size_t>(to - bytes_.data());
    return escaped;
  }

  void Finish(BlockRansSections& out) const {
    out.words.assign(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), bytes_.end());
    for (const std::uint32_t state : states_) PutLe(state & 0xFF, 1, out.states);
    for (const std::uint32_t state : states_) PutLe(state >> 8, 1, out.states);
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t at_;
  std::array<std::uint32_t, kBlockRansLanes> states_;
};

}  // namespace

BlockRansSections CodeBlockRansBlocks(std::span<const BlockRansResiduals> blocks,
                                      std::span<const std::uint8_t> codes, std::uint32_t bits,
                                      std::span<const BlockRansTable> tables) {
  std::vector<Symbols> symbols;
  for (const BlockRansTable& table : tables) symbols.emplace_back(table);
  const auto coded = static_cast<std::size_t>(
      std::ranges::count_if(codes, [](std::uint8_t code) { return code >> 3 != 0; }));
  // One byte more than can be kept: Block writes a byte before it knows whether it is needed.
  WordWriter writer(coded * kBlockRansLanes + 1);
  std::vector<std::uint64_t> escaped(blocks.size());
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (const std::uint32_t chosen = codes[i] >> 3; chosen != 0) {
      escaped[i] = writer.Block(blocks[i], symbols[chosen - 1]);
    }
  }
  BlockRansSections out;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (const std::uint32_t chosen = codes[i] >> 3; chosen != 0) {
      PutPlanesAndEscapes(blocks[i], bits, symbols[chosen - 1].shift, escaped[i], out);
    }
  }
  writer.Finish(out);
  return out;
}

}  // namespace forebay::compress
