#include "compress/decode/plane_decoder.h"

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_initStaticDCtx
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "compress/decode/brisk_decoder.h"
#include "compress/decode/packed_decoder.h"
#include "compress/decode/scratch_arena.h"
#include "compress/format/plane_kinds.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kShortIdBytes = 8;

Error Damaged(const char* what) {
  return Error(ErrorCode::kDataLoss, std::string("planes: ") + what);
}

Error MissingPredictor(std::uint64_t id) {
  std::string digits;
  for (int byte = 0; byte < 8; ++byte, id >>= 8) {
    digits += "0123456789abcdef"[id >> 4 & 0xF];
    digits += "0123456789abcdef"[id & 0xF];
  }
  return Error(ErrorCode::kFailedPrecondition,
               "planes: coded with the learned predictor whose SHA-256 begins with " + digits +
                   ", which is not at hand; give the folder in which its file lies");
}

template <typename T>
T LoadSample(const std::byte* from) {
  T sample = 0;
  std::memcpy(&sample, from, sizeof(T));
  return sample;
}

// Adds to each frame the one before it; bits beyond the valid ones are dropped. A `frame_samples`
// of all samples only does the latter. `bytes` may lie at any address. Frame by frame, so that
// what is read was written before and not in the same loop.
template <typename T>
void AddPreviousFrames(std::size_t frame_samples, std::uint8_t bits, std::span<std::byte> bytes) {
  const auto mask = static_cast<T>((1U << bits) - 1);
  const std::size_t frame_bytes = frame_samples * sizeof(T);
  for (std::size_t begin = 0; begin < bytes.size(); begin += frame_bytes) {
    const std::size_t count = std::min(frame_bytes, bytes.size() - begin);
    std::byte* __restrict const here = bytes.data() + begin;
    const std::byte* __restrict const before = begin > 0 ? here - frame_bytes : nullptr;
    for (std::size_t at = 0; at < count; at += sizeof(T)) {
      const T previous = before != nullptr ? LoadSample<T>(before + at) : T{0};
      const auto sample = static_cast<T>((LoadSample<T>(here + at) + previous) & mask);
      std::memcpy(here + at, &sample, sizeof(T));
    }
  }
}

struct Scratch {
  std::span<std::byte> context, samples;
};

Scratch Take(const PlaneShape& shape, ScratchArena& arena) {
  return {arena.Take<std::byte>(ZSTD_estimateDCtxSize()), arena.Take<std::byte>(shape.bytes())};
}

Status Inflate(const Scratch& scratch, std::span<const std::byte> body) {
  ZSTD_DCtx* const context =
      ZSTD_initStaticDCtx(scratch.context.data(), scratch.context.size());
  FOREBAY_CHECK(context != nullptr);
  const std::size_t bytes =
      ZSTD_decompressDCtx(context, scratch.samples.data(), scratch.samples.size(), body.data(),
                          body.size());
  if (ZSTD_isError(bytes) != 0) return Damaged(ZSTD_getErrorName(bytes));
  if (bytes != scratch.samples.size()) return Damaged("wrong length");
  return {};
}

}  // namespace

std::size_t PlaneScratchBytes(const PlaneShape& shape) {
  ScratchArena arena;
  Take(shape, arena);
  return std::max({arena.bytes(), WaveScratchBytes(shape), PackedScratchBytes(shape),
                   BriskScratchBytes(shape)});
}

Status DecodePlanes(const PlaneShape& shape, std::span<const std::byte> body,
                    std::uint32_t frames_wanted, std::span<std::byte> samples,
                    std::span<std::byte> scratch, WaveKernel kernel,
                    PredictorList predictors) {
  FOREBAY_CHECK(shape.bits >= 1 && shape.bits <= 16 && frames_wanted <= shape.frames);
  FOREBAY_CHECK(samples.size() ==
                frames_wanted * shape.frame_samples() * shape.sample_bytes());
  if (samples.empty()) return {};
  if (body.empty()) return Damaged("empty body");
  const std::byte kind = body[0];
  body = body.subspan(1);
  if (kind == kPlaneKindWave) {
    return DecodeWave(shape, body, frames_wanted, kernel, samples, scratch);
  }
  if (kind == kPlaneKindLearned) {
    if (shape.bits > 8 || body.size() < kShortIdBytes) return Damaged("a learned body of no sense");
    const auto id = ByteReader(body).ReadLe<std::uint64_t>();
    const Predictor* const predictor = FindPredictor(predictors, id);
    if (predictor == nullptr) return MissingPredictor(id);
    return DecodeWave(shape, body.subspan(kShortIdBytes), frames_wanted, kernel, samples, scratch,
                      predictor);
  }
  if (kind == kPlaneKindPacked) {
    return DecodePacked(shape, body, frames_wanted, kernel, samples, scratch);
  }
  if (kind == kPlaneKindBrisk) {
    return DecodeBrisk(shape, body, frames_wanted, kernel, samples, scratch);
  }
  ScratchArena arena(scratch);
  const Scratch parts = Take(shape, arena);
  if (kind == kPlaneKindRaw) {
    if (body.size() != shape.bytes()) return Damaged("wrong length");
    std::memcpy(samples.data(), body.data(), samples.size());
  } else if (kind == kPlaneKindZstd) {
    FOREBAY_TRY(Inflate(parts, body));
    std::memcpy(samples.data(), parts.samples.data(), samples.size());
  } else {
    return Damaged("unknown kind");
  }
  const std::size_t frame_samples =
      kind == kPlaneKindRaw ? samples.size() : shape.frame_samples();
  if (shape.sample_bytes() == 1) {
    AddPreviousFrames<std::uint8_t>(frame_samples, shape.bits, samples);
  } else {
    AddPreviousFrames<std::uint16_t>(frame_samples, shape.bits, samples);
  }
  return {};
}

}  // namespace forebay::compress
