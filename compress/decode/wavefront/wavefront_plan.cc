// Reads the side information of wavefront planes (docs/pack_planes.md): filters, thresholds, tables
// of frequencies and the blocks of all wanted frames. Every number is clamped or checked, so that
// kernels index tables with it unchecked. Called once for each body, by wavefront_decoder.cc.
#include "compress/decode/wavefront/wavefront_plan.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "compress/decode/wavefront/bit_decoder.h"
#include "compress/format/damaged.h"
#include "compress/format/plane/wavefront_side.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kWavefrontPart = "wavefront-coded planes";  // in errors

// Filters and thresholds of a group. Numbers out of range are clamped, as the format says; they
// cannot do harm, and an encoder never writes them.
void ReadFilters(BitDecoder& bits, WavefrontSideModels& models, std::size_t taps, bool learned,
                 WavefrontGroup& group) {
  for (std::uint32_t i = 0; i < group.filter_count; ++i) {
    WavefrontFilter& filter = group.filters[i];
    filter.clamped = bits.Bit(models.clamped);
    // The bit is only there where the predictor has a network for this group of frames.
    filter.learned = learned && bits.Bit(models.learned);
    for (std::size_t tap = 0; tap < taps; ++tap) {
      const std::int32_t weight = bits.SignedNumber(models.weights[tap]);
      filter.weights[tap] = static_cast<std::int16_t>(
          std::clamp<std::int32_t>(weight, kWavefrontWeightMin, kWavefrontWeightMax));
    }
  }
  // Thresholds ascend, so their differences are written.
  std::uint32_t threshold = 0;
  for (std::uint8_t& value : group.thresholds) {
    threshold = std::min<std::uint32_t>(threshold + bits.Number(models.threshold), 255);
    value = static_cast<std::uint8_t>(threshold);
  }
}

// Fills the slots of one symbol, four at a time, as runs are short. Up to three slots too many are
// written, which the next symbol overwrites; the table has room for three more at its end.
void FillSymbol(WavefrontEntry entry, std::uint32_t frequency, WavefrontEntry* slots) {
  for (std::uint32_t i = 0; i < frequency; i += 4) {
    slots[i] = entry | i << 20;
    slots[i + 1] = entry | (i + 1) << 20;
    slots[i + 2] = entry | (i + 2) << 20;
    slots[i + 3] = entry | (i + 3) << 20;
  }
}

// One context's frequencies; they must come to 2048 exactly. A context without symbols never
// occurs: its table says "symbol 0" so that whatever happens is defined.
Status ReadFrequencies(BitDecoder& bits, WavefrontSideModels& models, std::uint32_t sample_bits,
                       std::span<WavefrontEntry> table) {
  const std::uint32_t count = bits.Number(models.symbol_count);
  if (count > WavefrontSymbolCount(sample_bits)) {
    return Damaged(kWavefrontPart, "a context has too many symbols");
  }
  // A symbol that has all 2048 slots leaves a state as it was.
  if (count == 0) {
    for (std::uint32_t slot = 0; slot < kWavefrontProbabilityScale; ++slot) {
      table[slot] = kWavefrontProbabilityScale << 8 | slot << 20;
    }
    return {};
  }
  // A frequency is its bit length, modelled by the length before, and then the bits below the
  // highest one.
  std::uint32_t next = 0;
  std::uint32_t length = 0;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    length = bits.Tree(models.frequency_length[length]);
    // Also keeps the next length's model within the array: there is one for each length up to 12.
    if (length > kWavefrontProbabilityBits + 1) {
      return Damaged(kWavefrontPart, "a frequency exceeds 2048");
    }
    if (length == 0) continue;
    const std::uint32_t frequency = 1U << (length - 1) | bits.PlainBits(length - 1);
    // Compared before the slots are filled, which would otherwise run over the end of the table.
    if (frequency > kWavefrontProbabilityScale - next) {
      return Damaged(kWavefrontPart, "the frequencies of a context exceed 2048");
    }
    const WavefrontEntry entry = WavefrontSymbolAt(rank, sample_bits) | frequency << 8;
    FillSymbol(entry, frequency, &table[next]);
    next += frequency;
  }
  if (next != kWavefrontProbabilityScale) {
    return Damaged(kWavefrontPart, "the frequencies of a context do not add up to 2048");
  }
  return {};
}

// A block in one register: filter, then the motion's row and column, 8 bits each.
std::uint32_t Packed(const WavefrontBlock& block) {
  const auto byte = [](std::int8_t motion) {
    return std::uint32_t{static_cast<std::uint8_t>(motion)};
  };
  return block.filter | byte(block.motion_row) << 8 | byte(block.motion_column) << 16;
}

// Reads the blocks of one frame. `bits` is a copy, so that the compiler keeps its members in
// registers, in the loop that takes most of the time of reading side information.
struct BlockReader {
  BitDecoder bits;
  WavefrontSideModels& models;
  const std::uint32_t filter_bits;
  const bool inter;
  const bool skips, moves;    // whether any block of the frame is skipped, or displaced
  std::uint32_t highest = 0;  // filter met
  std::int32_t furthest = 0;  // motion met, a bit of its size at least

  // `left` and `above` are the neighbours, or a block of zeros at the frame's edge.
  [[gnu::always_inline]] std::uint32_t Read(std::uint32_t left, std::uint32_t above) {
    // Most blocks are as their left neighbour: one bit, modelled by whether the left and the upper
    // one are alike. Filter and motion of `left` are checked with all others at the end of the
    // frame.
    if (bits.Bit(models.as_left[inter][left == above])) return left;
    const std::uint32_t differences = left ^ above;
    const std::uint32_t skipped = (left >> 7 & 1) + (above >> 7 & 1);
    const bool skip = skips && bits.Bit(models.skip[inter][skipped]);
    std::uint32_t filter = left & 0x0F;
    if (!bits.Bit(models.same_filter[inter][(differences & 0x0F) == 0])) {
      filter = bits.Tree(models.filter[inter][filter], filter_bits);
    }
    highest = std::max(highest, filter);
    const std::uint32_t block = filter | (skip ? kWavefrontSkip : 0U);
    if (!moves) return block;
    if (bits.Bit(models.same_motion[differences >> 8 == 0])) return block | (left & 0xFFFF00);
    const std::int32_t row =
        static_cast<std::int8_t>(left >> 8) + bits.SignedNumber(models.motion[0]);
    const std::int32_t column =
        static_cast<std::int8_t>(left >> 16) + bits.SignedNumber(models.motion[1]);
    // Judged before the numbers are cut to 8 bits, and kept until the frame has been read, so that
    // the loop has no branch for damage.
    furthest = std::max({furthest, std::abs(row), std::abs(column)});
    return block | (static_cast<std::uint32_t>(row) & 0xFF) << 8 |
           (static_cast<std::uint32_t>(column) & 0xFF) << 16;
  }
};

Status ReadBlocks(BitDecoder& bits, WavefrontSideModels& models, std::uint32_t frames,
                  WavefrontPlan& plan) {
  const std::size_t frame_blocks = std::size_t{plan.block_rows} * plan.block_columns;
  for (std::uint32_t frame = 0; frame < frames; ++frame) {
    const bool inter = frame > 0;
    const WavefrontGroup& group = inter ? plan.parameters.inter : plan.parameters.intra;
    const bool skips = bits.Bit(models.frame_skips);
    // The first frame has nothing to be displaced from.
    const bool moves = inter && bits.Bit(models.frame_moves);
    BlockReader reader{.bits = bits,
                       .models = models,
                       .filter_bits = WavefrontFilterBits(group),
                       .inter = inter,
                       .skips = skips,
                       .moves = moves};
    WavefrontBlock* blocks = &plan.blocks[frame * frame_blocks];
    for (std::uint32_t row = 0; row < plan.block_rows; ++row) {
      std::uint32_t left = 0;
      for (std::uint32_t column = 0; column < plan.block_columns; ++column, ++blocks) {
        left = reader.Read(left, row > 0 ? Packed(*(blocks - plan.block_columns)) : 0);
        *blocks = {.filter = static_cast<std::uint8_t>(left),
                   .motion_row = static_cast<std::int8_t>(left >> 8),
                   .motion_column = static_cast<std::int8_t>(left >> 16)};
      }
    }
    bits = reader.bits;
    // Checked once a frame: until here the values were only stored, in types that cannot exceed
    // their bounds.
    if (reader.highest >= group.filter_count) {
      return Damaged(kWavefrontPart, "a block names a filter that does not exist");
    }
    if (reader.furthest > kWavefrontMotionMax) {
      return Damaged(kWavefrontPart, "the motion of a block is out of range");
    }
    if (bits.exhausted()) return Damaged(kWavefrontPart, "the side information ends early");
  }
  return {};
}

Status ReadGroup(BitDecoder& bits, WavefrontSideModels& models, const PlaneShape& shape, bool inter,
                 WavefrontPlan& plan) {
  const std::span<WavefrontEntry> table = inter ? plan.inter_table : plan.intra_table;
  ReadFilters(bits, models, inter ? kInterTapCount : kIntraTapCount, plan.nets[inter] != nullptr,
              inter ? plan.parameters.inter : plan.parameters.intra);
  for (std::size_t context = 0; context < kWavefrontContexts; ++context) {
    FOREBAY_TRY(ReadFrequencies(
        bits, models, shape.bits,
        table.subspan(context * kWavefrontProbabilityScale, kWavefrontProbabilityScale)));
  }
  return {};
}

std::uint32_t BlocksAcross(std::uint32_t pixels, std::uint32_t block_log2) {
  return (pixels + (1U << block_log2) - 1) >> block_log2;
}

void TakeMemory(const PlaneShape& shape, std::uint32_t frames, std::uint32_t block_log2,
                ScratchArena& arena, WavefrontPlan& plan) {
  plan.block_rows = BlocksAcross(shape.rows, block_log2);
  plan.block_columns = BlocksAcross(shape.columns, block_log2);
  constexpr std::size_t kTableEntries =
      std::size_t{kWavefrontContexts} * kWavefrontProbabilityScale;
  plan.intra_table = arena.Take<WavefrontEntry>(kTableEntries + 3);
  plan.inter_table = arena.Take<WavefrontEntry>(kTableEntries + 3);
  plan.states = arena.Take<std::uint32_t>(kWavefrontLanes);
  plan.blocks =
      arena.Take<WavefrontBlock>(std::size_t{frames} * plan.block_rows * plan.block_columns);
}

}  // namespace

void CountWavefrontPlan(const PlaneShape& shape, ScratchArena& arena) {
  WavefrontPlan plan;
  TakeMemory(shape, shape.frames, kWavefrontBlockLog2Min, arena, plan);
}

Result<WavefrontPlan> ReadWavefrontPlan(const PlaneShape& shape, std::span<const std::byte> body,
                                        std::uint32_t frames_wanted, ScratchArena& arena,
                                        const Predictor* predictor) {
  WavefrontPlan plan;
  for (const bool inter : {false, true}) {
    if (predictor != nullptr && predictor->net(inter).present()) {
      plan.nets[inter] = &predictor->net(inter);
    }
  }
  WavefrontParameters& parameters = plan.parameters;
  ByteReader reader(body);
  // A reader without bytes gives zeros; ok() is asked once, before any of them is used.
  parameters.block_log2 = reader.ReadLe<std::uint8_t>();
  parameters.magnitude_shift = reader.ReadLe<std::uint8_t>();
  parameters.top = reader.ReadLe<std::uint16_t>();
  parameters.intra.filter_count = reader.ReadLe<std::uint8_t>();
  parameters.inter.filter_count = reader.ReadLe<std::uint8_t>();
  // A size beyond the body makes Take fail, so no hostile size is used.
  const std::span<const std::byte> side = reader.Take(reader.ReadLe<std::uint32_t>());
  const std::uint32_t lanes = std::min(shape.rows, kWavefrontLanes);
  const bool inter = shape.frames > 1;
  if (!reader.ok()) return Damaged(kWavefrontPart, "the header ends early");
  if (parameters.block_log2 < kWavefrontBlockLog2Min ||
      parameters.block_log2 > kWavefrontBlockLog2Max || parameters.magnitude_shift > 15 ||
      parameters.top >> shape.bits != 0 ||
      parameters.intra.filter_count - 1 >= kWavefrontFiltersMax ||
      (inter && parameters.inter.filter_count - 1 >= kWavefrontFiltersMax) ||
      (!inter && parameters.inter.filter_count != 0)) {
    return Damaged(kWavefrontPart, "a header field is out of range");
  }
  // Not before the header is checked: the number of blocks follows from block_log2.
  // CountWavefrontPlan has counted the smallest block size and so the most memory.
  TakeMemory(shape, frames_wanted, parameters.block_log2, arena, plan);
  // Lanes beyond the last row never decode. Their state must still look like one that has ended.
  std::ranges::fill(plan.states, kWavefrontStateMin);
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    plan.states[lane] = reader.ReadLe<std::uint32_t>();
    if (reader.ok() && plan.states[lane] < kWavefrontStateMin) {
      return Damaged(kWavefrontPart, "the state of a lane is below 2^16");
    }
  }
  plan.words = reader.Take(reader.remaining());
  if (!reader.ok() || plan.words.size() % 2 != 0) {
    return Damaged(kWavefrontPart, "the states end early");
  }
  BitDecoder bits(side);
  WavefrontSideModels models;
  FOREBAY_TRY(ReadGroup(bits, models, shape, false, plan));
  if (inter) FOREBAY_TRY(ReadGroup(bits, models, shape, true, plan));
  FOREBAY_TRY(ReadBlocks(bits, models, frames_wanted, plan));
  return plan;
}

}  // namespace forebay::compress
