// Encodes a chunk: tries the stages and planes of a coded chunk (coded_chunk_encoder.h), then plain
// zstd or LZ4, and stores the elements where neither saves enough. A coded payload is decoded at
// once and compared with what was encoded, so that no bug in an encoder can damage data silently.
// Called by RecordQueue, in several threads.
#include "compress/encode/chunk/chunk_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/encode/chunk/bound_checker.h"
#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/chunk/coded_chunk_encoder.h"
#include "compress/encode/chunk/error_bound.h"
#include "compress/format/chunk/element_code.h"

namespace forebay::compress {
namespace {

// Compression that saves less than one byte in this many is not worth decoding.
constexpr std::size_t kSavingShareMin = 128;

Status CheckBoundOptions(const ChunkShape& shape, const ErrorBound& bound) {
  const auto is_bound = [](double value) { return std::isfinite(value) && value >= 0; };
  const bool valid = is_bound(bound.absolute) && is_bound(bound.relative);
  if (!valid || bound.mode > BoundMode::kPointwise) {
    return Error(ErrorCode::kInvalidArgument,
                 "error bound: mode " + std::to_string(static_cast<int>(bound.mode)) +
                     ", absolute " + NumberText(bound.absolute) + ", relative " +
                     NumberText(bound.relative) + "; bounds are finite and not negative");
  }
  if (bound.mode != BoundMode::kLossless && shape.dtype == Dtype::kBytes) {
    return Error(ErrorCode::kInvalidArgument,
                 "error bound: byte strings are exact; leave the bound out, or give the field a "
                 "numeric type such as u8");
  }
  if (bound.mode == BoundMode::kPointwise && OrderOf(shape.dtype) != CodeOrder::kFloat) {
    return Error(ErrorCode::kInvalidArgument,
                 "error bound: pointwise bounds are for floating point, not for " +
                     std::string(DtypeName(shape.dtype)));
  }
  return {};
}

// Decodes `payload` and compares the result with `raw`: it must be equal, or within the error bound
// if there is one. Returns what a reader will get if that differs from `raw`, else nothing.
Result<std::vector<std::byte>> Verify(const ChunkShape& shape, std::span<const std::byte> raw,
                                      std::span<const std::byte> payload,
                                      const ChunkOptions& options) {
  const ErrorBound& bound = options.bound;
  const std::array list = {options.predictor};
  // Not zeroed: pages that the decoder never touches are never made.
  const std::size_t scratch_bytes = ChunkScratchBytes(shape);
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(raw.size());
  const std::span decoded(memory.get(), raw.size());
  const ChunkRange whole = ChunkRange::Whole(shape);
  // The chunk is decoded by the decoder that readers have, with its fastest kernel.
  FOREBAY_TRY(DecodeChunk(shape, ChunkCodec::kCoded, payload, whole,
                          StridedOutput::Dense(shape, whole, decoded),
                          std::span(scratch.get(), scratch_bytes), list));
  // A bounded chunk may come back exactly as well. Then statistics of `raw` are right for it.
  if (std::equal(raw.begin(), raw.end(), decoded.begin())) return std::vector<std::byte>();
  if (bound.mode != BoundMode::kLossless) {
    const BoundReport report = CheckBound(shape.dtype, raw, decoded, bound, shape.fill_bits);
    if (report.ok()) return std::vector<std::byte>(decoded.begin(), decoded.end());
  }
  return Error(ErrorCode::kInternal, "chunk: decodes to something else than was encoded");
}

// zstd or LZ4 without stages, where that may be smaller than `coded_bytes`; else the elements as
// they are.
EncodedChunk EncodeBytes(std::span<const std::byte> raw, Profile profile,
                         std::size_t coded_bytes) {
  const std::size_t worthwhile =
      std::min(coded_bytes, raw.size() - raw.size() / kSavingShareMin);
  EncodedChunk chunk;
  if (profile == Profile::kFast) {
    chunk = {.codec = ChunkCodec::kLz4, .payload = CompressLz4(raw)};
    if (chunk.payload.size() <= worthwhile) return chunk;
  } else if (MayBeat(raw, profile == Profile::kBalanced
                               ? worthwhile / 2
                               : BarBesidePlanes(raw.size(), worthwhile))) {
    const int level = profile == Profile::kBalanced ? 3 : 9;
    chunk = {.codec = ChunkCodec::kZstd, .payload = CompressZstd(raw, level)};
    if (chunk.payload.size() <= worthwhile) return chunk;
  }
  return {.codec = ChunkCodec::kStore, .payload = {raw.begin(), raw.end()}};
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
  FOREBAY_ASSIGN(std::vector<std::byte> coded, EncodeCodedChunk(shape, raw, options));
  // Elements that repeat over long distances may be smaller in zstd than in any planes.
  EncodedChunk plain = EncodeBytes(raw, options.profile, coded.size());
  if (plain.codec != ChunkCodec::kStore ||
      coded.size() >= raw.size() - raw.size() / kSavingShareMin) {
    return plain;
  }
  FOREBAY_ASSIGN(std::vector<std::byte> decoded, Verify(shape, raw, coded, options));
  return EncodedChunk{
      .codec = ChunkCodec::kCoded, .payload = std::move(coded), .decoded = std::move(decoded)};
}

}  // namespace forebay::compress
