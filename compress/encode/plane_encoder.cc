// Encodes a stack of planes: picks the codec of the profile (block-rANS for balanced, bit-packed or
// block-rANS for fast, wavefront or learned for dense and learned), and tries zstd on the
// differences between frames where a probe says that it may win. Falls back to raw samples where
// nothing is smaller. Called by plane_streams.cc and by the mask encoder.
#include "compress/encode/plane_encoder.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "compress/encode/block/bit_packed_encoder.h"
#include "compress/encode/block/block_rans_encoder.h"
#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/wavefront/wavefront_encoder.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// Up to this size the tables and states of block-rANS cost more than its faster decoding is worth.
constexpr std::size_t kSmallPlaneBytes = std::size_t{8} << 10;

// Writes the differences to the previous frame to `residuals`, and the first frame as it is.
// Returns false if a sample has bits beyond its valid ones.
template <typename T>
bool SubtractPreviousFrames(const PlaneShape& shape, std::span<const std::byte> samples,
                            std::span<std::byte> residuals) {
  const std::size_t count = samples.size() / sizeof(T);
  const std::size_t first = std::min(count, shape.frame_samples());
  const auto mask = static_cast<T>((1U << shape.bits) - 1);
  const auto load = [&](std::size_t i) {
    T value = 0;
    std::memcpy(&value, samples.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  T seen = 0;
  for (std::size_t i = 0; i < first; ++i) seen = static_cast<T>(seen | load(i));
  // The first frame has none before it and stays as it is.
  std::memcpy(residuals.data(), samples.data(), first * sizeof(T));
  for (std::size_t i = first; i < count; ++i) {
    const T value = load(i);
    seen = static_cast<T>(seen | value);
    const auto residual = static_cast<T>((value - load(i - first)) & mask);
    std::memcpy(residuals.data() + i * sizeof(T), &residual, sizeof(T));
  }
  // All samples were OR-ed together, so one comparison finds a bit that does not belong there.
  return (seen & static_cast<T>(~mask)) == 0;
}

// Encodes those differences with zstd, which finds what repeats over long distances, such as masks
// and labels.
std::vector<std::byte> EncodeZstd(std::span<const std::byte> residuals, int level) {
  // One byte for the kind, so that the body need not be moved afterwards.
  std::vector<std::byte> body(1 + ZSTD_compressBound(residuals.size()));
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  FOREBAY_CHECK(context != nullptr);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  const std::size_t bytes = ZSTD_compress2(context.get(), body.data() + 1, body.size() - 1,
                                           residuals.data(), residuals.size());
  FOREBAY_CHECK(ZSTD_isError(bytes) == 0);
  body[0] = kPlaneKindZstd;
  body.resize(1 + bytes);
  return body;
}

std::vector<std::byte> EncodePredicted(const PlaneShape& shape,
                                       std::span<const std::byte> samples, Profile profile,
                                       const Predictor* predictor) {
  // Bit-packed planes of wide samples have no wide decoder: block-rANS ones are smaller and faster.
  const bool block_rans =
      profile == Profile::kBalanced || (profile == Profile::kFast && shape.sample_bytes() == 2);
  // Small planes take one of the codecs below.
  if (block_rans && samples.size() > kSmallPlaneBytes) {
    std::vector<std::byte> body = EncodeBlockRans(shape, samples);
    body.insert(body.begin(), kPlaneKindBlockRans);
    return body;
  }
  if (profile == Profile::kFast) {
    std::vector<std::byte> body = EncodeBitPacked(shape, samples);
    body.insert(body.begin(), kPlaneKindBitPacked);
    return body;
  }
  WavefrontEffort effort;
  if (profile == Profile::kBalanced) {
    effort = {.fit_rounds = 0, .motion_reach = 0, .intra_filters = 4, .inter_filters = 4};
  }
  const bool may_learn =
      profile == Profile::kLearned && predictor != nullptr && shape.bits <= 8;
  LearnedBodies bodies = may_learn ? EncodeLearned(shape, samples, effort, *predictor)
                                   : LearnedBodies{.plain = EncodeWavefront(shape, samples, effort),
                                                   .learned = std::nullopt};
  // A learned body names its predictor by 8 bytes, which count.
  if (!bodies.learned.has_value() ||
      sizeof(std::uint64_t) + bodies.learned->size() >= bodies.plain.size()) {
    bodies.plain.insert(bodies.plain.begin(), kPlaneKindWavefront);
    return std::move(bodies.plain);
  }
  ByteWriter writer;
  writer.Le(std::to_integer<std::uint8_t>(kPlaneKindLearned));
  writer.Le(predictor->short_id());
  writer.Bytes(*bodies.learned);
  return writer.Release();
}

}  // namespace

Result<std::vector<std::byte>> EncodePlanes(const PlaneShape& shape,
                                            std::span<const std::byte> samples,
                                            Profile profile, const Predictor* predictor) {
  FOREBAY_CHECK(shape.bits >= 1 && shape.bits <= 16 && samples.size() == shape.bytes());
  std::vector<std::byte> residuals(samples.size());
  const bool valid = shape.sample_bytes() == 1
                         ? SubtractPreviousFrames<std::uint8_t>(shape, samples, residuals)
                         : SubtractPreviousFrames<std::uint16_t>(shape, samples, residuals);
  if (!valid) {
    return Error(ErrorCode::kInvalidArgument,
                 "planes: a sample has more than " + std::to_string(shape.bits) + " bits");
  }
  if (samples.empty()) return std::vector<std::byte>{kPlaneKindRaw};
  std::vector<std::byte> best = EncodePredicted(shape, samples, profile, predictor);
  const bool hurried = profile == Profile::kBalanced;  // does not try what will hardly win
  const std::size_t bar =
      hurried ? best.size() / 2 : BarBesidePlanes(samples.size(), best.size());
  if (profile != Profile::kFast && MayBeat(residuals, bar)) {
    // Masks and labels repeat themselves from afar, which no predictor sees.
    std::vector<std::byte> repeating = EncodeZstd(residuals, hurried ? 3 : 9);
    if (repeating.size() < best.size()) best = std::move(repeating);
  }
  // The raw body is one byte longer than the samples, so equal sizes stay coded.
  if (best.size() > samples.size()) {
    best.assign(1, kPlaneKindRaw);
    best.insert(best.end(), samples.begin(), samples.end());
  }
  return best;
}

}  // namespace forebay::compress
