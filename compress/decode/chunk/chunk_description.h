// What a chunk's payload is made of: its streams, how each is coded, and which predictors its
// planes use. For people who look at a pack; decoding does not need it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Kinds of prediction of a wavefront-coded block.
enum class BlockPrediction : std::uint8_t {
  kSkip = 0,      // the previous frame as it is, or nothing
  kSpatial = 1,   // from the frame itself
  kTemporal = 2,  // from earlier frames alone
  kMixed = 3,     // from both
};
inline constexpr std::size_t kBlockPredictions = 4;
const char* BlockPredictionName(BlockPrediction prediction);

struct StreamDescription {
  std::string name;   // "plane", "plane 1 of channel 2", "mask", "escapes", "dictionary", "bytes"
  std::string coder;  // "store", "zstd", "lz4", "constant", "wavefront", "learned" ...
  std::uint32_t bits = 0;            // of a plane's samples; 0: no plane
  std::uint64_t raw_bytes = 0, coded_bytes = 0;
  // Of a wavefront-coded plane's blocks, and of a learned one's whose predictor is at hand.
  std::array<std::uint64_t, kBlockPredictions> blocks = {};
  std::uint64_t moved_blocks = 0;    // of them, those predicted from another place

  std::uint64_t block_count() const { return blocks[0] + blocks[1] + blocks[2] + blocks[3]; }
};

// The streams of a payload, which has been verified. Allocates its own scratch memory, at most
// what decoding the chunk takes. `predictors` are those that the reader has. Errors: kDataLoss,
// kUnimplemented.
Result<std::vector<StreamDescription>> DescribeChunk(const ChunkShape& shape, ChunkCodec codec,
                                                     std::span<const std::byte> payload,
                                                     PredictorList predictors = {});

}  // namespace forebay::compress
