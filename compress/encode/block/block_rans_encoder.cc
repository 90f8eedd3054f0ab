// Encodes block-rANS planes (docs/pack_planes.md). A sample of blocks yields classes and their
// costs; then every block takes the predictor and class that code it in the fewest bits, and each
// class that was chosen gets a table of frequencies. With effort kRefined, costs are estimated
// again from all blocks and the choice is repeated. Called by plane_encoder.cc and
// plane_streams.cc.
#include "compress/encode/block/block_rans_encoder.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "compress/encode/block/block_frame.h"
#include "compress/encode/block/block_rans_classes.h"
#include "compress/encode/block/block_rans_kernels.h"
#include "compress/encode/block/block_rans_symbols.h"
#include "compress/encode/block/block_rans_tables.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kSampledBlocks = 4096;  // that classes are made for
constexpr std::size_t kBlocksPerClass = 24;   // sampled; a class costs a table
constexpr std::uint32_t kClasses = 15;
constexpr std::uint32_t kChangeCost = 2 * kBlockRansCostUnit;  // of a byte unlike the last block's
// What an effort means: how often costs are taken again from the choices that they led to, which
// predictors are tried (those that leave one part in so many more than the best), and zstd's level.
struct BlockRansSearch {
  int rounds = 0;
  std::uint32_t slack_share = 16;
  int side_level = 3;
};
constexpr BlockRansSearch kRefined = {.rounds = 2, .slack_share = 4, .side_level = 19};

class BlockRansEncoder {
 public:
  BlockRansEncoder(const PlaneShape& shape, std::span<const std::byte> samples,
                   BlockRansEffort effort)
      : shape_(shape),
        search_(effort == BlockRansEffort::kRefined ? kRefined : BlockRansSearch{}),
        block_rows_(CountBlocks(shape.rows, kBlockRows)),
        block_columns_(CountBlocks(shape.columns, kBlockColumns)) {
    for (std::uint32_t t = 0; t < shape.frames; ++t) frames_.emplace_back(shape, samples, t);
  }

  std::vector<std::byte> Run() {
    // Few blocks mean few classes: each costs a table in the side information.
    const std::vector<BlockRansResiduals> sampled = SampleBlocks();
    classes_ = static_cast<std::uint32_t>(
        std::clamp<std::size_t>(sampled.size() / kBlocksPerClass, 1, kClasses));
    shifts_ = ChooseBlockRansClasses(sampled, shape_.bits, classes_, costs_);
    ChooseBlocks();
    for (int round = 0; round < search_.rounds; ++round) Refine();
    const std::vector<BlockRansTable> tables = MakeTables();
    const BlockRansSections sections = CodeBlockRansBlocks(blocks_, codes_, shape_.bits, tables);
    return Serialise(tables, sections);
  }

 private:
  // Computes the residuals of a block under all predictors (candidates_), and their sizes. The
  // first frame has no previous one, so its temporal predictors are out of the question.
  void Predict(std::uint32_t frame, std::uint32_t row, std::uint32_t column) {
    const BlockFrame& current = frames_[frame];
    // In the first frame it stands for itself. Whatever that predicts is marked unusable below.
    const BlockFrame& previous = frames_[frame > 0 ? frame - 1 : 0];
    BlockRansPredict(current.Block(row, column), previous.Block(row, column), current.stride(),
                     shape_.bits, candidates_);
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const bool usable = frame > 0 || i < kTemporalPredictor;
      sizes_[i] = usable ? BlockRansSize(candidates_[i]) : UINT32_MAX;
    }
  }

  // Tries temporal predictors first. Of two predictors with equal residuals the temporal one is
  // cheaper to undo.
  std::size_t Smallest() const {
    // Predictor numbers with the temporal bit flipped: 4, 5, 6, 7, 0, 1, 2, 3.
    std::size_t best = kTemporalPredictor;
    for (std::size_t i = 0; i < kBlockPredictors; ++i) {
      const std::size_t predictor = i ^ kTemporalPredictor;
      if (sizes_[predictor] < sizes_[best]) best = predictor;
    }
    return best;
  }

  // Residuals of evenly spaced blocks under their best predictor. Blocks whose residuals are all
  // zero need no class and are left out.
  std::vector<BlockRansResiduals> SampleBlocks() {
    std::vector<BlockRansResiduals> sampled;
    const std::size_t blocks = CountBlocks(shape_);
    // Evenly over all frames, so that the classes fit the whole stack and not its beginning.
    const std::size_t step = std::max<std::size_t>(blocks / kSampledBlocks, 1);
    for (std::size_t i = 0; i < blocks; i += step) {
      const std::size_t in_frame = i % (std::size_t{block_rows_} * block_columns_);
      Predict(static_cast<std::uint32_t>(i / (std::size_t{block_rows_} * block_columns_)),
              static_cast<std::uint32_t>(in_frame / block_columns_),
              static_cast<std::uint32_t>(in_frame % block_columns_));
      const std::size_t best = Smallest();
      if (sizes_[best] > 0) sampled.push_back(candidates_[best]);
    }
    return sampled;
  }

  void ChooseBlocks() {
    blocks_.resize(CountBlocks(shape_));
    codes_.reserve(blocks_.size());
    for (std::uint32_t frame = 0; frame < shape_.frames; ++frame) {
      for (std::uint32_t row = 0; row < block_rows_; ++row) {
        for (std::uint32_t column = 0; column < block_columns_; ++column) {
          Predict(frame, row, column);
          const std::uint8_t code = ChooseCode();
          blocks_[codes_.size()] = candidates_[code & kPredictorMask];
          codes_.push_back(code);
        }
      }
    }
  }

  // The predictor and class that cost a block least. A predictor whose residuals are much larger
  // than the best one's is not tried. A byte that differs from the last block's costs kChangeCost
  // more, as zstd codes repeated bytes well.
  std::uint8_t ChooseCode() const {
    const std::size_t smallest = Smallest();
    // Class 0 with this predictor: the decoder reads nothing for such a block.
    if (sizes_[smallest] == 0) return static_cast<std::uint8_t>(smallest);
    const std::uint8_t last = codes_.empty() ? std::uint8_t{0} : codes_.back();
    const std::uint32_t limit = sizes_[smallest] + sizes_[smallest] / search_.slack_share;
    std::uint32_t best_cost = UINT32_MAX;
    std::uint8_t best = 0;
    for (std::size_t i = 0; i < kBlockPredictors; ++i) {
      const std::size_t predictor = i ^ kTemporalPredictor;
      if (sizes_[predictor] > limit) continue;
      BlockRansCostLine sums;
      BlockRansBlockCosts(candidates_[predictor], shape_.bits > 8, costs_, sums);
      for (std::uint32_t c = 0; c < classes_; ++c) {
        const auto code = static_cast<std::uint8_t>((c + 1) << 3 | predictor);
        const std::uint32_t cost = sums[c] + (code == last ? 0 : kChangeCost);
        if (cost >= best_cost) continue;
        best_cost = cost;
        best = code;
      }
    }
    return best;
  }

  // Estimates costs again from the blocks that chose each class, and lets all blocks choose again.
  void Refine() {
    std::vector<std::uint8_t> chosen;
    chosen.reserve(codes_.size());
    // Blocks of zeros have no class: theirs becomes the largest number.
    for (const std::uint8_t code : codes_) {
      chosen.push_back(static_cast<std::uint8_t>((code >> 3) - 1));
    }
    shifts_ = EstimateBlockRansClasses(blocks_, chosen, shape_.bits, classes_, costs_);
    // ChooseCode compares with the last block's byte, so the choice starts with none.
    codes_.clear();
    ChooseBlocks();
  }

  // Makes the tables of the classes that some block has chosen, and renumbers the classes so that
  // there are no gaps.
  std::vector<BlockRansTable> MakeTables() {
    std::vector<BlockRansTable> tables;
    std::vector<std::uint8_t> renamed(classes_ + 1);
    const std::uint32_t mask = (1U << shape_.bits) - 1;
    std::vector<std::uint32_t> counts(std::size_t{1} << shape_.bits);
    for (std::uint32_t c = 1; c <= classes_; ++c) {
      std::ranges::fill(counts, 0);
      bool used = false;
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (codes_[i] >> 3 != c) continue;
        used = true;
        for (const std::int16_t residual : blocks_[i]) {
          ++counts[static_cast<std::uint32_t>(residual) & mask];
        }
      }
      // A class that no block chose would cost a table for nothing.
      if (!used) continue;
      tables.push_back(ChooseBlockRansTable(counts, shape_.bits, shifts_[c - 1]));
      renamed[c] = static_cast<std::uint8_t>(tables.size());
    }
    for (std::uint8_t& code : codes_) {
      code = static_cast<std::uint8_t>(renamed[code >> 3] << 3 | (code & kPredictorMask));
    }
    return tables;
  }

  // Side information as docs/pack_planes.md lays it out: the classes, then a byte for each block.
  std::vector<std::byte> SideInformation(std::span<const BlockRansTable> tables) const {
    ByteWriter writer;
    writer.Le(static_cast<std::uint8_t>(tables.size()));
    for (const BlockRansTable& table : tables) {
      writer.Le(table.shift);
      writer.Le(table.escape_slots);
      // Frequencies end where all slots are taken. Their number is not written.
      std::uint32_t left = table.escape_slots_at();
      for (std::uint32_t rank = 0; left > 0; ++rank) {
        const std::uint8_t frequency =
            table.frequency[static_cast<std::uint8_t>(BlockRansToken(rank))];
        writer.Le(frequency);
        left -= frequency;
      }
    }
    writer.Bytes(std::as_bytes(std::span(codes_)));
    return writer.Release();
  }

  std::vector<std::byte> Serialise(std::span<const BlockRansTable> tables,
                                   const BlockRansSections& sections) const {
    const std::vector<std::byte> side = SideInformation(tables);
    std::vector<std::byte> compressed(ZSTD_compressBound(side.size()));
    const std::size_t bytes = ZSTD_compress(compressed.data(), compressed.size(), side.data(),
                                            side.size(), search_.side_level);
    FOREBAY_CHECK(ZSTD_isError(bytes) == 0);
    compressed.resize(bytes);
    // Little side information can grow when it is compressed; then it is stored as it is.
    const bool smaller = compressed.size() < side.size();
    ByteWriter writer;
    writer.Le(smaller ? kBlockRansCompressedSide : std::uint8_t{0});
    writer.Le(static_cast<std::uint32_t>(smaller ? compressed.size() : side.size()));
    writer.Le(static_cast<std::uint32_t>(sections.planes.size()));
    writer.Le(static_cast<std::uint32_t>(sections.escapes.size()));
    writer.Bytes(smaller ? compressed : side);
    writer.Bytes(sections.planes);
    writer.Bytes(sections.words);
    writer.Bytes(sections.escapes);
    writer.Bytes(sections.states);
    return writer.Release();
  }

  const PlaneShape& shape_;
  const BlockRansSearch search_;
  const std::uint32_t block_rows_, block_columns_;
  std::vector<BlockFrame> frames_;
  BlockRansCandidates candidates_{};
  std::array<std::uint32_t, kBlockPredictors> sizes_{};
  std::uint32_t classes_ = 0;
  std::vector<std::uint8_t> shifts_;
  BlockRansCosts costs_{};
  std::vector<BlockRansResiduals> blocks_;
  std::vector<std::uint8_t> codes_;
};

}  // namespace

std::vector<std::byte> EncodeBlockRans(const PlaneShape& shape, std::span<const std::byte> samples,
                                       BlockRansEffort effort) {
  FOREBAY_CHECK(shape.frames > 0 && shape.rows > 0 && shape.columns > 0);
  FOREBAY_CHECK(shape.bits >= 1 && shape.bits <= 16 && samples.size() == shape.bytes());
  return BlockRansEncoder(shape, samples, effort).Run();
}

}  // namespace forebay::compress
