// Collects the planes that predictors are trained on, as the plane codec sees them: from the coded
// chunks of a pack, or from raw frames, which are encoded first so that the stages do to them
// what they will do when the predictor is used. Callers bound the bytes that are kept.
#include "compress/train/chunk_planes.h"

#include <algorithm>
#include <fstream>
#include <memory>

#include "compress/decode/chunk/byte_stream.h"
#include "compress/decode/isa.h"
#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_file.h"
#include "compress/decode/pack/predictor_file.h"
#include "compress/decode/plane_decoder.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/format/chunk/chunk_header.h"

namespace forebay::compress {
namespace {

// Decodes a plane to its samples, whatever coder it has.
Result<std::vector<std::byte>> SamplesOf(const PlaneShape& shape, const ChunkStream& stream,
                                         PredictorList predictors) {
  std::vector<std::byte> samples(shape.bytes());
  if (stream.coder == StreamCoder::kPlanes) {
    std::vector<std::byte> scratch(PlaneScratchBytes(shape));
    FOREBAY_TRY(DecodePlanes(shape, stream.body, shape.frames, samples, scratch,
                             BestIsa(), predictors));
    return samples;
  }
  // Only the plane coder guarantees that samples have no bits above the plane's; bytes of other
  // coders may, so they are masked below.
  std::vector<std::byte> scratch(ByteStreamScratchBytes());
  FOREBAY_TRY(DecodeByteStream(stream.coder, stream.body, samples, scratch));
  for (std::byte& sample : samples) sample &= static_cast<std::byte>((1U << shape.bits) - 1);
  return samples;
}

// Moves `stacks` to the end of `all`.
Status Append(std::vector<PlaneStack> stacks, std::size_t bytes_max, std::size_t& bytes,
              std::vector<PlaneStack>& all) {
  for (PlaneStack& stack : stacks) {
    // `bytes` never exceeds the limit, so this subtraction cannot wrap. An error, and not a silent
    // cut: a predictor must not depend on how much memory was allowed.
    if (stack.samples.size() > bytes_max - bytes) {
      return Error(ErrorCode::kResourceExhausted,
                   "training frames of more than " + std::to_string(bytes_max) +
                       " bytes; train on fewer (--limit)");
    }
    bytes += stack.samples.size();
    all.push_back(std::move(stack));
  }
  return {};
}

}  // namespace

Result<std::vector<PlaneStack>> PlanesOfChunk(const ChunkShape& shape,
                                              std::span<const std::byte> payload,
                                              PredictorList predictors) {
  FOREBAY_ASSIGN(const CodedHead head, ParseChunkHead(shape, payload));
  const ChunkGeometry geometry = GeometryOf(shape);
  std::vector<PlaneStack> stacks;
  // Chunks that are too narrow for the plane coder never use a predictor.
  if (!geometry.allows_planes) return stacks;
  const std::uint32_t planes = head.stages.plane_count;
  for (std::uint32_t i = 0; i < planes * geometry.channels; ++i) {
    const ChunkStream& stream = head.streams[head.plane_stream() + i];
    const PlaneShape plane = geometry.Plane(head.stages.plane_bits[i % planes]);
    // Predictors correct samples of up to 8 bits; a constant plane has nothing to learn.
    if (plane.bits > 8 || stream.coder == StreamCoder::kConstant) continue;
    FOREBAY_ASSIGN(std::vector<std::byte> samples, SamplesOf(plane, stream, predictors));
    stacks.push_back({plane, std::move(samples)});
  }
  return stacks;
}

Result<std::vector<PlaneStack>> PlanesOfPack(const std::string& path, const std::string& field,
                                             std::size_t bytes_max) {
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(path));
  // The pack may itself need a predictor to be decoded; it is looked for beside the pack.
  const PackReadOptions options{.budget = {}, .find_predictor = PredictorsBeside(path)};
  FOREBAY_ASSIGN(const PackFile pack, PackFile::Open(*source, options));
  std::uint32_t wanted = 0;
  if (!field.empty()) {
    FOREBAY_ASSIGN(wanted, pack.FindField(field));
  }
  std::vector<std::byte> scratch(pack.ScratchBytes());
  std::vector<PlaneStack> all;
  std::size_t bytes = 0;
  for (const ChunkEntry& entry : pack.index().chunks) {
    const PackField& of = pack.schema().fields[entry.field];
    // Byte strings have no planes.
    if (of.variable() || (!field.empty() && entry.field != wanted)) continue;
    FOREBAY_ASSIGN(const PackFile::LoadedChunk chunk, pack.Load(entry, scratch));
    if (chunk.record.head.codec != ChunkCodec::kCoded) continue;
    FOREBAY_ASSIGN(std::vector<PlaneStack> stacks,
                   PlanesOfChunk(of.Shape(entry.tile, entry.sample_count),
                                 chunk.record.payload, pack.schema().predictors));
    FOREBAY_TRY(Append(std::move(stacks), bytes_max, bytes, all));
  }
  return all;
}

Result<std::vector<PlaneStack>> PlanesOfRaw(const RawFrames& raw, std::size_t bytes_max) {
  std::ifstream file(raw.path, std::ios::binary);
  if (!file) return Error(ErrorCode::kNotFound, raw.path + ": cannot be opened");
  std::vector<PlaneStack> all;
  std::size_t bytes = 0;
  for (std::uint32_t first = 0; first < raw.frames; first += raw.chunk_frames) {
    const ChunkShape shape = {.dtype = Dtype::kU8,
                              .samples = std::min(raw.chunk_frames, raw.frames - first),
                              .rank = 2,
                              .extent = {raw.rows, raw.columns, 1, 1}};
    FOREBAY_TRY(CheckChunkShape(shape));
    std::vector<std::byte> samples(shape.bytes());
    file.read(reinterpret_cast<char*>(samples.data()),
              static_cast<std::streamsize>(samples.size()));
    if (file.gcount() != static_cast<std::streamsize>(samples.size())) {
      return Error(ErrorCode::kDataLoss,
                   raw.path + ": ends at frame " + std::to_string(first) + " of " +
                       std::to_string(raw.frames));
    }
    // The fast profile is enough: only the stages before the planes matter, and the planes are
    // decoded again at once. Its result is only looked at, so nothing of it needs to be small.
    FOREBAY_ASSIGN(const EncodedChunk chunk,
                   EncodeChunk(shape, samples, {.profile = Profile::kFast}));
    if (chunk.codec != ChunkCodec::kCoded) continue;
    FOREBAY_ASSIGN(std::vector<PlaneStack> stacks, PlanesOfChunk(shape, chunk.payload, {}));
    FOREBAY_TRY(Append(std::move(stacks), bytes_max, bytes, all));
  }
  return all;
}

}  // namespace forebay::compress
