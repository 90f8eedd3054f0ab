// Forebay's own codec behind the same interface as its peers: its chunks, each verified as the
// peers' pieces are, and counted with the same index. The row `end_to_end` shows how much of this
// speed arrives through the service.
#include <bit>
#include <utility>

#include "bench/codec/peer_table.h"
#include "bench/codec/profile_names.h"
#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "proto/contract/tensor.h"

namespace forebay::bench {
namespace {

constexpr std::size_t kChunkBytesMax = std::size_t{4} << 20;

Result<compress::ChunkShape> ShapeOf(const ArrayInfo& info) {
  compress::ChunkShape shape;
  FOREBAY_ASSIGN(shape.dtype, ParseDtype(info.dtype));
  // The first axis counts samples and is not part of a sample's shape.
  if (info.shape.size() > compress::kChunkRankMax + 1) {
    return Error(ErrorCode::kUnimplemented, "forebay: more axes than a chunk has");
  }
  shape.samples = 1;
  shape.rank = static_cast<std::uint8_t>(info.shape.size() - 1);
  for (std::size_t axis = 0; axis < shape.rank; ++axis) {
    shape.extent[axis] = info.shape[axis + 1];
  }
  if (info.fill) {
    // The sets' fill values are 0 or floats.
    shape.fill_bits = info.dtype == "f32"
                          ? std::bit_cast<std::uint32_t>(static_cast<float>(*info.fill))
                          : static_cast<std::uint32_t>(*info.fill);
  }
  return shape;
}

// A piece is the chunk's codec, then its payload.
class ChunkCodecPiece : public PieceCodec {
 public:
  ChunkCodecPiece(compress::ChunkOptions options, Result<compress::ChunkShape> shape)
      : options_(options), shape_(std::move(shape)) {}

  Result<std::vector<std::byte>> Encode(const PieceShape& piece,
                                        std::span<const std::byte> raw) override {
    FOREBAY_ASSIGN(const compress::ChunkShape shape, ShapeFor(piece));
    FOREBAY_ASSIGN(compress::EncodedChunk chunk, compress::EncodeChunk(shape, raw, options_));
    // A pack keeps the codec's number beside the payload. Here it is a byte in front of it, so that
    // it counts in the size.
    chunk.payload.insert(chunk.payload.begin(), static_cast<std::byte>(chunk.codec));
    return std::move(chunk.payload);
  }

  Status Decode(const PieceShape& piece, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    return DecodeSamples(piece, coded, 0, piece.frames, out);
  }

  bool decodes_frames() const override { return true; }
  Status DecodeFrame(const PieceShape& piece, std::span<const std::byte> coded,
                     std::uint32_t index, std::span<std::byte> out) override {
    return DecodeSamples(piece, coded, index, 1, out);
  }

 private:
  Result<compress::ChunkShape> ShapeFor(const PieceShape& piece) const {
    FOREBAY_ASSIGN(compress::ChunkShape shape, Result<compress::ChunkShape>(shape_));
    shape.samples = piece.frames;
    return shape;
  }

  Status DecodeSamples(const PieceShape& piece, std::span<const std::byte> coded,
                       std::uint32_t first, std::uint32_t count, std::span<std::byte> out) {
    FOREBAY_ASSIGN(const compress::ChunkShape shape, ShapeFor(piece));
    const std::size_t scratch_bytes = compress::ChunkScratchBytes(shape);
    // Grows once, at the first decode, which the rounds repeat: timed calls allocate nothing.
    if (scratch_.size() < scratch_bytes) scratch_.resize(scratch_bytes);
    const compress::ChunkRange range = compress::ChunkRange::Samples(shape, first, count);
    return compress::DecodeChunk(shape, static_cast<compress::ChunkCodec>(coded.front()),
                                 coded.subspan(1), range,
                                 compress::StridedOutput::Dense(shape, range, out),
                                 std::span(scratch_).first(scratch_bytes));
  }

  compress::ChunkOptions options_;
  Result<compress::ChunkShape> shape_;
  std::vector<std::byte> scratch_;
};

}  // namespace

Result<std::unique_ptr<Peer>> MakeForebayPeer(const ForebayOptions& options) {
  compress::ChunkOptions chunk;
  FOREBAY_ASSIGN(chunk.profile, ProfileOf(options.profile));
  // An error and not a warning: a row that asks for smaller vectors must not be answered with the
  // best ones.
  if (!options.isa.empty()) {
    return Error(ErrorCode::kUnimplemented, "forebay: chunks take no choice of kernels yet");
  }
  const bool lossy = options.absolute_bound > 0;
  if (lossy) {
    chunk.bound = {.mode = compress::BoundMode::kAbsolute, .absolute = options.absolute_bound};
  }
  return MakePiecewisePeer(
      {.name = "forebay_" + options.profile,
       .settings = "profile " + options.profile + ", chunks of " + std::to_string(options.gop) +
                   " samples" +
                   (lossy ? ", absolute bound " + std::to_string(options.absolute_bound) : ""),
       // The limit of a chunk in a pack, so that a piece is what a pack would store.
       .piece_bytes = kChunkBytesMax,
       .piece_frames = options.gop,
       .whole_frames = true,
       .lossless = !lossy,
       .make_codec = [chunk](const ArrayInfo& info) {
         return std::make_unique<ChunkCodecPiece>(chunk, ShapeOf(info));
       }});
}

}  // namespace forebay::bench
