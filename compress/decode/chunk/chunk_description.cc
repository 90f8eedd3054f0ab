// Describes the streams of a chunk for `forebay inspect`: names, coders, sizes, and for wavefront
// planes how many blocks are predicted in which way. Parses the head and the side information and
// decodes no sample.
#include "compress/decode/chunk/chunk_description.h"

#include <algorithm>

#include "compress/decode/scratch_arena.h"
#include "compress/decode/wavefront/wavefront_plan.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/damaged.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

// Whether a filter uses any of the neighbours [begin, end).
bool AnyWeight(const WavefrontFilter& filter, std::size_t begin, std::size_t end) {
  // The weights of the current frame's neighbours come first, then those of earlier frames.
  return std::any_of(filter.weights.begin() + static_cast<std::ptrdiff_t>(begin),
                     filter.weights.begin() + static_cast<std::ptrdiff_t>(end),
                     [](std::int16_t weight) { return weight != 0; });
}

BlockPrediction PredictionOf(const WavefrontBlock& block, const WavefrontGroup& group, bool inter) {
  if ((block.filter & kWavefrontSkip) != 0) return BlockPrediction::kSkip;
  // The first frame has no frame before it, so its filters have no temporal weights.
  if (!inter) return BlockPrediction::kSpatial;
  // ReadWavefrontPlan has refused numbers of filters that do not exist.
  const WavefrontFilter& filter = group.filters[block.filter % kWavefrontFiltersMax];
  const bool spatial = AnyWeight(filter, 0, kIntraTapCount);
  const bool temporal = AnyWeight(filter, kIntraTapCount, kInterTapCount);
  if (spatial && temporal) return BlockPrediction::kMixed;
  return temporal ? BlockPrediction::kTemporal : BlockPrediction::kSpatial;
}

// Counts the blocks of a wavefront plane by the way they are predicted. `body` begins behind the
// kind byte and, in a learned plane, behind the predictor's id.
Status CountBlocks(const PlaneShape& shape, std::span<const std::byte> body,
                   const Predictor* predictor, StreamDescription& stream) {
  ScratchArena counting;
  // Parsing takes its memory from an arena as decoding does: the first pass only counts.
  CountWavefrontPlan(shape, counting);
  std::vector<std::byte> memory(counting.bytes());
  ScratchArena arena(memory);
  FOREBAY_ASSIGN(const WavefrontPlan plan,
                 ReadWavefrontPlan(shape, body, shape.frames, arena, predictor));
  // The blocks of all frames lie one after the other, and only the first frame is intra.
  const std::size_t in_frame = std::size_t{plan.block_rows} * plan.block_columns;
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    const WavefrontBlock& block = plan.blocks[i];
    const bool inter = i >= in_frame;
    const WavefrontGroup& group = inter ? plan.parameters.inter : plan.parameters.intra;
    ++stream.blocks[static_cast<std::size_t>(PredictionOf(block, group, inter))];
    if (block.motion_row != 0 || block.motion_column != 0) ++stream.moved_blocks;
  }
  return {};
}

Status CountLearnedBlocks(const PlaneShape& shape, std::span<const std::byte> body,
                          PredictorList predictors, StreamDescription& stream) {
  ByteReader reader(body);
  // These are the checks of DecodePlanes: a chunk that does not decode must not get a description.
  const auto id = reader.ReadLe<std::uint64_t>();
  if (!reader.ok() || shape.bits > 8) {
    return Damaged("planes", "a learned body is too short, or its samples have more than 8 bits");
  }
  const Predictor* const predictor = FindPredictor(predictors, id);
  // Without its predictor the plane cannot be parsed. Its size is described all the same.
  if (predictor == nullptr) return {};
  return CountBlocks(shape, body.subspan(sizeof(id)), predictor, stream);
}

// A plane's coder by the first byte of its body.
std::string PlaneCoder(std::span<const std::byte> body) {
  // Decoding would fail here. A description only names what it finds.
  if (body.empty()) return "damaged";
  switch (body[0]) {
    case kPlaneKindRaw: return "raw";
    case kPlaneKindZstd: return "delta zstd";
    case kPlaneKindWavefront: return "wavefront";
    case kPlaneKindBitPacked: return "bit-packed";
    case kPlaneKindBlockRans: return "block-rans";
    case kPlaneKindLearned: return "learned";
    default: return "kind " + std::to_string(std::to_integer<int>(body[0]));
  }
}

std::string CoderName(const ChunkStream& stream) {
  switch (stream.coder) {
    case StreamCoder::kStore: return "store";
    case StreamCoder::kZstd: return "zstd";
    case StreamCoder::kLz4: return "lz4";
    case StreamCoder::kConstant: return "constant";
    case StreamCoder::kPlanes: return PlaneCoder(stream.body);
  }
  return "unknown";
}

std::string PlaneName(std::uint32_t number, std::uint32_t planes, std::uint32_t channels) {
  std::string name = "plane";
  // Streams of planes are ordered by channel, and within a channel by plane.
  if (planes > 1) name += " " + std::to_string(number % planes);
  if (channels > 1) name += " of channel " + std::to_string(number / planes);
  return name;
}

// The name of a stream that is no plane, by its place in the order of the payload.
std::string SideName(const CodedHead& head, std::uint32_t number) {
  if (number < head.stages.mask_count) return "mask";
  if (number == head.escape_stream() && head.stages.escape_count > 0) return "escapes: places";
  if (number == head.escape_stream() + 1 && head.stages.escape_count > 0) {
    return "escapes: values";
  }
  return "dictionary";
}

}  // namespace

const char* BlockPredictionName(BlockPrediction prediction) {
  switch (prediction) {
    case BlockPrediction::kSkip: return "skip";
    case BlockPrediction::kSpatial: return "spatial";
    case BlockPrediction::kTemporal: return "temporal";
    case BlockPrediction::kMixed: return "mixed";
  }
  return "unknown";
}

Result<std::vector<StreamDescription>> DescribeChunk(const ChunkShape& shape, ChunkCodec codec,
                                                     std::span<const std::byte> payload,
                                                     PredictorList predictors) {
  FOREBAY_TRY(CheckChunkShape(shape));
  // Other codecs have one stream, the payload. Nothing of it is decoded or checked here.
  if (codec != ChunkCodec::kCoded) {
    const char* coder = codec == ChunkCodec::kZstd  ? "zstd"
                        : codec == ChunkCodec::kLz4 ? "lz4"
                                                    : "store";
    return std::vector<StreamDescription>{{.name = "bytes",
                                           .coder = coder,
                                           .raw_bytes = shape.bytes(),
                                           .coded_bytes = payload.size()}};
  }
  FOREBAY_ASSIGN(const CodedHead head, ParseChunkHead(shape, payload));
  const ChunkGeometry geometry = GeometryOf(shape);
  std::vector<StreamDescription> streams;
  for (std::uint32_t i = 0; i < head.stream_count; ++i) {
    const ChunkStream& stream = head.streams[i];
    StreamDescription& found = streams.emplace_back();
    found.coder = CoderName(stream);
    found.raw_bytes = stream.raw_bytes;
    found.coded_bytes = stream.body.size();
    // A mask that is coded as planes has one bit for each element; only chunks of one channel have
    // it.
    PlaneShape plane = geometry.Plane(1);
    if (i < head.plane_stream()) {
      found.name = SideName(head, i);
    } else {
      const std::uint32_t number = i - head.plane_stream();
      plane = geometry.Plane(head.stages.plane_bits[number % head.stages.plane_count]);
      found.name = PlaneName(number, head.stages.plane_count, geometry.channels);
      found.bits = plane.bits;
      // The shape's own size: the head's is the same, as ParseChunkHead has compared them.
      found.raw_bytes = plane.bytes();
    }
    if (stream.coder == StreamCoder::kPlanes && found.coder == "wavefront") {
      FOREBAY_TRY(CountBlocks(plane, stream.body.subspan(1), nullptr, found));
    } else if (stream.coder == StreamCoder::kPlanes && found.coder == "learned") {
      FOREBAY_TRY(CountLearnedBlocks(plane, stream.body.subspan(1), predictors, found));
    }
  }
  return streams;
}

}  // namespace forebay::compress
