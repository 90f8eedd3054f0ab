// Encodes wavefront planes (docs/pack_planes.md): runs the steps in the order of README.md, and
// writes side information and body. For learned planes the work of the filters is done once; the
// corrected and the plain body are both made, and the caller keeps the smaller one. Called by
// plane_encoder.cc.
#include "compress/encode/wavefront/wavefront_encoder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compress/encode/wavefront/bit_encoder.h"
#include "compress/encode/wavefront/learned_choice.h"
#include "compress/encode/wavefront/wavefront_entropy.h"
#include "compress/encode/wavefront/wavefront_work.h"
#include "compress/format/plane/wavefront_side.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// Writes side information with the models that the decoder moves in the same way
// (format/plane/wavefront_side.h); wavefront_plan.cc reads it.
class SideWriter {
 public:
  // `learned`: a predictor corrects some of the group's filters.
  void Group(const WavefrontGroup& group, std::size_t taps, bool learned,
             const GroupFrequencies& frequencies, std::uint32_t bits) {
    for (std::uint32_t i = 0; i < group.filter_count; ++i) {
      bits_.Bit(models_.clamped, group.filters[i].clamped);
      if (learned) bits_.Bit(models_.learned, group.filters[i].learned);
      for (std::size_t tap = 0; tap < taps; ++tap) {
        bits_.SignedNumber(models_.weights[tap], group.filters[i].weights[tap]);
      }
    }
    // Thresholds ascend, and equal ones may follow each other (wavefront_contexts.cc fills up with
    // 255). So each is written as the difference to the one before, which is never negative.
    std::uint32_t before = 0;
    for (std::uint8_t threshold : group.thresholds) {
      bits_.Number(models_.threshold, threshold - before);
      before = threshold;
    }
    for (const SymbolFrequencies& context : frequencies.contexts) Frequencies(context, bits);
  }

  // Two bits before a frame's blocks: whether any is skipped, whether any moves.
  void Frame(std::span<const WavefrontBlock> blocks, const WavefrontGroup& group, bool inter) {
    skips_ = std::ranges::any_of(
        blocks, [](const WavefrontBlock& block) { return (block.filter & kWavefrontSkip) != 0; });
    moves_ = std::ranges::any_of(blocks, [](const WavefrontBlock& block) {
      return block.motion_row != 0 || block.motion_column != 0;
    });
    // With a single filter this is 0, and no bit is written for naming it.
    filter_bits_ = WavefrontFilterBits(group);
    bits_.Bit(models_.frame_skips, skips_);
    if (inter) bits_.Bit(models_.frame_moves, moves_);
  }

  // One block, by comparison with the left and the upper one.
  void Block(const WavefrontBlock& block, const WavefrontBlock& left, const WavefrontBlock& above,
             bool inter) {
    const auto index = static_cast<std::size_t>(inter);
    // A block that repeats its left neighbour is coded as one bit. The bit has one model for blocks
    // whose left and upper neighbours are equal and one for others, so that each model learns its
    // own probability.
    bits_.Bit(models_.as_left[index][left == above], block == left);
    if (block == left) return;
    const auto skipped = static_cast<std::size_t>((left.filter >> 7) + (above.filter >> 7));
    if (skips_) bits_.Bit(models_.skip[index][skipped], (block.filter & kWavefrontSkip) != 0);
    const std::uint8_t filter = block.filter & 0x0F;
    const std::uint8_t left_filter = left.filter & 0x0F;
    const bool agree = left_filter == (above.filter & 0x0F);
    bits_.Bit(models_.same_filter[index][agree], filter == left_filter);
    if (filter != left_filter) {
      bits_.Tree(models_.filter[index][left_filter], filter, filter_bits_);
    }
    if (moves_) Motion(block, left, above);
  }

  std::vector<std::byte> Finish() { return bits_.Finish(); }

 private:
  // A context's frequencies, by rank: small residuals first. Of each number its bit length, which
  // is modelled by the length before it, and then the bits below the highest one as they are.
  void Frequencies(const SymbolFrequencies& context, std::uint32_t bits) {
    std::uint32_t count = WavefrontSymbolCount(bits);
    // Trailing symbols that never occur are not written.
    while (count > 0 && context.frequency[WavefrontSymbolAt(count - 1, bits)] == 0) --count;
    bits_.Number(models_.symbol_count, count);
    std::uint32_t length = 0;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const std::uint32_t frequency = context.frequency[WavefrontSymbolAt(rank, bits)];
      auto& model = models_.frequency_length[length];
      length = static_cast<std::uint32_t>(std::bit_width(frequency));
      bits_.Tree(model, length);
      if (length > 1) bits_.PlainBits(frequency & ((1U << (length - 1)) - 1), length - 1);
    }
  }

  // A block's displacement as the difference to the left block's.
  void Motion(const WavefrontBlock& block, const WavefrontBlock& left,
              const WavefrontBlock& above) {
    const bool agree =
        left.motion_row == above.motion_row && left.motion_column == above.motion_column;
    const bool same =
        block.motion_row == left.motion_row && block.motion_column == left.motion_column;
    bits_.Bit(models_.same_motion[agree], same);
    if (same) return;
    bits_.SignedNumber(models_.motion[0], block.motion_row - left.motion_row);
    bits_.SignedNumber(models_.motion[1], block.motion_column - left.motion_column);
  }

  BitEncoder bits_;
  WavefrontSideModels models_;
  bool skips_ = false, moves_ = false;
  std::uint32_t filter_bits_ = 0;
};

template <typename T>
std::vector<std::byte> WriteSide(const WavefrontWork<T>& work,
                                 const std::array<GroupFrequencies, 2>& frequencies) {
  SideWriter writer;
  const auto learned = [&](bool inter) {
    return work.predictor != nullptr && work.predictor->net(inter).present();
  };
  writer.Group(work.parameters.intra, kIntraTapCount, learned(false), frequencies[0],
               work.shape.bits);
  if (work.shape.frames > 1) {
    writer.Group(work.parameters.inter, kInterTapCount, learned(true), frequencies[1],
                 work.shape.bits);
  }
  // Stands for the neighbours that blocks at the left and upper edge do not have; the decoder
  // assumes the same.
  const WavefrontBlock edge;
  const WavefrontBlock* block = work.blocks.data();
  for (std::uint32_t frame = 0; frame < work.shape.frames; ++frame) {
    writer.Frame({block, std::size_t{work.block_rows} * work.block_columns},
                 frame > 0 ? work.parameters.inter : work.parameters.intra, frame > 0);
    for (std::uint32_t row = 0; row < work.block_rows; ++row) {
      for (std::uint32_t column = 0; column < work.block_columns; ++column, ++block) {
        writer.Block(*block, column > 0 ? block[-1] : edge,
                     row > 0 ? *(block - work.block_columns) : edge, frame > 0);
      }
    }
  }
  return writer.Finish();
}

template <typename T>
std::vector<std::byte> Encode(const PlaneShape& shape, std::span<const std::byte> samples,
                              const WavefrontEffort& effort) {
  WavefrontWork<T> work = ChooseWavefront<T>(shape, samples, effort);
  ChooseMagnitudeShift(work);
  return WriteWavefrontBody(work);
}

}  // namespace

template <typename T>
WavefrontWork<T> PrepareWavefrontWork(const PlaneShape& shape, std::span<const std::byte> samples,
                                      const WavefrontEffort& effort) {
  WavefrontWork<T> work;
  work.shape = shape;
  work.effort = effort;
  work.middle = 1 << (shape.bits - 1);
  work.motion_rows = ((shape.rows - 1) >> kMotionBlockLog2) + 1;
  work.motion_columns = ((shape.columns - 1) >> kMotionBlockLog2) + 1;
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    auto& memory = work.memory.emplace_back(PaddedFrame<T>::Samples(shape.rows, shape.columns));
    const auto frame = PaddedFrame<T>::Over(memory.data(), shape.rows, shape.columns);
    const std::byte* from = samples.data() + t * shape.frame_samples() * sizeof(T);
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      std::memcpy(frame.Row(static_cast<std::int32_t>(row)),
                  from + std::size_t{row} * shape.columns * sizeof(T), shape.columns * sizeof(T));
    }
    // Fills the margins, so that filters and motion may read beyond the edges without a test.
    frame.Extend();
    work.frames.push_back({frame.origin, frame.rows, frame.columns, frame.stride});
  }
  // The row above the first frame is the median of its first row, a single number in the body;
  // above other frames it is the previous frame's first row.
  std::vector<T> first(work.frames[0].Row(0), work.frames[0].Row(0) + shape.columns);
  std::ranges::nth_element(first, first.begin() + static_cast<std::ptrdiff_t>(first.size() / 2));
  work.parameters.top = first[first.size() / 2];
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    auto& above = work.above.emplace_back(shape.columns + 16, static_cast<T>(work.parameters.top));
    if (t > 0) std::copy_n(work.frames[t - 1].Row(0) - 8, above.size(), above.begin());
  }
  return work;
}

template <typename T>
WavefrontWork<T> ChooseWavefront(const PlaneShape& shape, std::span<const std::byte> samples,
                                 const WavefrontEffort& effort) {
  WavefrontWork<T> work = PrepareWavefrontWork<T>(shape, samples, effort);
  // Each step needs what the one before it chose: filters are fitted along the motion, and
  // residuals are what the filters leave.
  SearchMotion(work);
  ChooseFilters(work);
  ComputeResiduals(work);
  return work;
}

template <typename T>
std::vector<std::byte> WriteWavefrontBody(WavefrontWork<T>& work) {
  // Before the side information, which holds the frequencies that the symbols are then coded with.
  const auto frequencies = ModelContexts(work);
  // The size precedes the side information, so it is made before anything is written.
  const std::vector<std::byte> side = WriteSide(work, frequencies);
  ByteWriter writer;
  writer.Le(static_cast<std::uint8_t>(work.parameters.block_log2));
  writer.Le(static_cast<std::uint8_t>(work.parameters.magnitude_shift));
  writer.Le(static_cast<std::uint16_t>(work.parameters.top));
  writer.Le(static_cast<std::uint8_t>(work.parameters.intra.filter_count));
  writer.Le(static_cast<std::uint8_t>(work.parameters.inter.filter_count));
  writer.Le(static_cast<std::uint32_t>(side.size()));
  writer.Bytes(side);
  writer.Bytes(EncodeSymbols(work, frequencies));
  return writer.Release();
}

template WavefrontWork<std::uint8_t> PrepareWavefrontWork(const PlaneShape&,
                                                          std::span<const std::byte>,
                                                          const WavefrontEffort&);
template WavefrontWork<std::uint16_t> PrepareWavefrontWork(const PlaneShape&,
                                                           std::span<const std::byte>,
                                                           const WavefrontEffort&);
template WavefrontWork<std::uint8_t> ChooseWavefront(const PlaneShape&, std::span<const std::byte>,
                                                     const WavefrontEffort&);
template WavefrontWork<std::uint16_t> ChooseWavefront(const PlaneShape&, std::span<const std::byte>,
                                                      const WavefrontEffort&);
template std::vector<std::byte> WriteWavefrontBody(WavefrontWork<std::uint8_t>&);
template std::vector<std::byte> WriteWavefrontBody(WavefrontWork<std::uint16_t>&);

std::vector<std::byte> EncodeWavefront(const PlaneShape& shape, std::span<const std::byte> samples,
                                       const WavefrontEffort& effort) {
  FOREBAY_CHECK(shape.frames > 0 && shape.rows > 0 && shape.columns > 0);
  FOREBAY_CHECK(shape.bits >= 1 && shape.bits <= 16 && samples.size() == shape.bytes());
  return shape.bits <= 8 ? Encode<std::uint8_t>(shape, samples, effort)
                         : Encode<std::uint16_t>(shape, samples, effort);
}

LearnedBodies EncodeLearned(const PlaneShape& shape, std::span<const std::byte> samples,
                            const WavefrontEffort& effort, const Predictor& predictor) {
  FOREBAY_CHECK(shape.frames > 0 && shape.rows > 0 && shape.columns > 0);
  FOREBAY_CHECK(shape.bits >= 1 && shape.bits <= 8 && samples.size() == shape.bytes());
  WavefrontWork<std::uint8_t> work = ChooseWavefront<std::uint8_t>(shape, samples, effort);
  // The search is the expensive part, so it is done once and its result copied.
  WavefrontWork<std::uint8_t> plain = work;  // its frames are those of `work`
  ChooseMagnitudeShift(plain);
  LearnedBodies bodies{.plain = WriteWavefrontBody(plain), .learned = std::nullopt};
  if (!ChooseCorrections(predictor, work)) return bodies;
  ChooseMagnitudeShift(work);
  bodies.learned = WriteWavefrontBody(work);
  return bodies;
}

}  // namespace forebay::compress
