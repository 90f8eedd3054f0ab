#include "compress/encode/chunk_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "compress/decode/chunk_decoder.h"
#include "compress/encode/bound_checker.h"
#include "compress/encode/byte_stream_encoder.h"
#include "compress/encode/coded_chunk_encoder.h"
#include "compress/format/element_code.h"

namespace forebay::compress {
namespace {

// Compression that saves less than one byte in this many is not worth decoding.
constexpr std::size_t kSavingShareMin = 128;

Status CheckBoundOptions(const ChunkShape& shape, const ErrorBound& bound) {
  const auto is_bound = [](double value) { return std::isfinite(value) && value >= 0; };
  const bool valid = is_bound(bound.absolute) && is_bound(bound.relative) &&
                     is_bound(bound.value_range.value_or(0));
  if (!valid || bound.mode > BoundMode::kPointwise) {
    return Error(ErrorCode::kInvalidArgument,
                 "error bound: mode " + std::to_string(static_cast<int>(bound.mode)) +
                     ", absolute " + std::to_string(bound.absolute) + ", relative " +
                     std::to_string(bound.relative) + "; bounds are finite and not negative");
  }
  if (bound.mode == BoundMode::kPointwise && OrderOf(shape.dtype) != CodeOrder::kFloat) {
    return Error(ErrorCode::kInvalidArgument,
                 "error bound: pointwise bounds are for floating point, not for " +
                     std::string(DtypeName(shape.dtype)));
  }
  return {};
}

// Decodes what was encoded: exact without a bound, else within it.
Status Verify(const ChunkShape& shape, std::span<const std::byte> raw,
              std::span<const std::byte> payload, const ErrorBound& bound) {
  std::vector<std::byte> decoded(raw.size()), scratch(ChunkScratchBytes(shape));
  const ChunkRange whole = ChunkRange::Whole(shape);
  FOREBAY_TRY(DecodeChunk(shape, ChunkCodec::kCoded, payload, whole,
                          StridedOutput::Dense(shape, whole, decoded), scratch));
  if (std::equal(raw.begin(), raw.end(), decoded.begin())) return {};
  if (bound.mode != BoundMode::kLossless) {
    const BoundReport report = CheckBound(shape.dtype, raw, decoded, bound, shape.fill_bits);
    if (report.ok()) return {};
  }
  return Error(ErrorCode::kInternal, "chunk: decodes to something else than was encoded");
}

EncodedChunk EncodeBytes(std::span<const std::byte> raw, Profile profile) {
  EncodedChunk chunk;
  if (profile == Profile::kFast) {
    chunk = {.codec = ChunkCodec::kLz4, .payload = CompressLz4(raw)};
  } else {
    const int level = profile == Profile::kBalanced ? 3 : 9;
    chunk = {.codec = ChunkCodec::kZstd, .payload = CompressZstd(raw, level)};
  }
  if (chunk.payload.size() >= raw.size() - raw.size() / kSavingShareMin) {
    chunk = {.codec = ChunkCodec::kStore, .payload = {raw.begin(), raw.end()}};
  }
  return chunk;
}

}  // namespace

Result<EncodedChunk> EncodeChunk(const ChunkShape& shape, std::span<const std::byte> raw,
                                 const ChunkOptions& options) {
  FOREBAY_TRY(CheckChunkShape(shape));
  FOREBAY_TRY(CheckBoundOptions(shape, options.bound));
  if (raw.size() != shape.bytes()) {
    return Error(ErrorCode::kInvalidArgument,
                 "chunk: " + std::to_string(raw.size()) + " bytes, its shape has " +
                     std::to_string(shape.bytes()));
  }
  EncodedChunk best = EncodeBytes(raw, options.profile);
  FOREBAY_ASSIGN(std::vector<std::byte> coded, EncodeCodedChunk(shape, raw, options));
  if (coded.size() >= best.payload.size() ||
      coded.size() >= raw.size() - raw.size() / kSavingShareMin) {
    return best;
  }
  FOREBAY_TRY(Verify(shape, raw, coded, options.bound));
  return EncodedChunk{.codec = ChunkCodec::kCoded, .payload = std::move(coded)};
}

}  // namespace forebay::compress
