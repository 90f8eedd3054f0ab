// Decodes a stack of planes by its kind, the first byte of the body. Wavefront-coded, learned,
// bit-packed and block-rANS planes have decoders of their own. Raw and zstd planes are decoded
// here: raw ones are the samples, zstd ones the differences between frames, so that all frames up
// to the last wanted one are summed. Bits beyond the plane's are dropped in both. Called by
// coded_chunk.cc.
#include "compress/decode/plane_decoder.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "compress/decode/block/bit_packed_decoder.h"
#include "compress/decode/block/block_rans_decoder.h"
#include "compress/decode/inflate.h"
#include "compress/decode/isa.h"
#include "compress/decode/scratch_arena.h"
#include "compress/decode/wavefront/wavefront_decoder.h"
#include "compress/format/damaged.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kPlanesPart = "planes";  // in errors
// A learned body names its predictor by the first 8 bytes of the SHA-256, in the order of the
// digest.
constexpr std::size_t kShortIdBytes = 8;

Error MissingPredictor(std::uint64_t id) {
  std::string digits;
  // The id was read as a little-endian number, so its lowest byte is the digest's first.
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

// Adds the previous frame, if there is one, to `frame`, and drops bits beyond the valid ones. Both
// may lie at any address.
template <typename T>
void AddFrame(const std::byte* __restrict before, std::uint8_t bits, std::span<std::byte> frame) {
  // A hostile body may have higher bits set. The format promises that decoded pixels are below
  // 2^bits whatever a body says.
  const auto mask = static_cast<T>((1U << bits) - 1);
  std::byte* __restrict const here = frame.data();
  for (std::size_t at = 0; at < frame.size(); at += sizeof(T)) {
    const T previous = before != nullptr ? LoadSample<T>(before + at) : T{0};
    const auto sample = static_cast<T>((LoadSample<T>(here + at) + previous) & mask);
    std::memcpy(here + at, &sample, sizeof(T));
  }
}

void Complete(const PlaneShape& shape, const std::byte* before, std::span<std::byte> frame) {
  if (shape.sample_bytes() == 1) {
    AddFrame<std::uint8_t>(before, shape.bits, frame);
  } else {
    AddFrame<std::uint16_t>(before, shape.bits, frame);
  }
}

// Copies the frames that are wanted from `raw`, where they lie as they are.
void PlaceRaw(const PlaneShape& shape, std::span<const std::byte> raw, std::uint32_t frames_wanted,
              const FrameOutput& out) {
  const std::size_t frame_bytes = shape.frame_samples() * shape.sample_bytes();
  for (std::uint32_t t = 0; t < frames_wanted; ++t) {
    const std::span<std::byte> place = out.At(t, frame_bytes);
    if (place.empty()) continue;
    std::memcpy(place.data(), raw.data() + t * frame_bytes, frame_bytes);
    // Adds nothing, and drops the bits beyond the plane's.
    Complete(shape, nullptr, place);
  }
}

// Places frames given as differences to the frame before. A frame that is not wanted is summed in
// place, because the next one needs it.
void PlaceSums(const PlaneShape& shape, std::span<std::byte> differences,
               std::uint32_t frames_wanted, const FrameOutput& out) {
  const std::size_t frame_bytes = shape.frame_samples() * shape.sample_bytes();
  // The frame before, wherever it was placed: in the caller's memory or among the differences.
  const std::byte* before = nullptr;
  for (std::uint32_t t = 0; t < frames_wanted; ++t) {
    const std::span<std::byte> own = differences.subspan(t * frame_bytes, frame_bytes);
    std::span<std::byte> place = out.At(t, frame_bytes);
    if (place.empty()) {
      place = own;
    } else {
      std::memcpy(place.data(), own.data(), frame_bytes);
    }
    Complete(shape, before, place);
    before = place.data();
  }
}

struct Scratch {
  std::span<std::byte> context, samples;
};

Scratch TakePlaneScratch(const PlaneShape& shape, ScratchArena& arena) {
  return {arena.Take<std::byte>(InflateScratchBytes()), arena.Take<std::byte>(shape.bytes())};
}

}  // namespace

std::size_t PlaneScratchBytes(const PlaneShape& shape) {
  ScratchArena arena;
  TakePlaneScratch(shape, arena);
  // The largest of all kinds, because the kind is known only when the body is read, and memory is
  // taken before.
  return std::max({arena.bytes(), WavefrontScratchBytes(shape), BitPackedScratchBytes(shape),
                   BlockRansScratchBytes(shape)});
}

Status DecodePlanes(const PlaneShape& shape, std::span<const std::byte> body,
                    std::uint32_t frames_wanted, std::span<std::byte> samples,
                    std::span<std::byte> scratch, Isa isa,
                    PredictorList predictors) {
  FOREBAY_CHECK(samples.size() ==
                frames_wanted * shape.frame_samples() * shape.sample_bytes());
  return DecodePlanes(shape, body, frames_wanted, FrameOutput(samples), scratch, isa,
                      predictors);
}

Status DecodePlanes(const PlaneShape& shape, std::span<const std::byte> body,
                    std::uint32_t frames_wanted, const FrameOutput& out,
                    std::span<std::byte> scratch, Isa isa,
                    PredictorList predictors) {
  FOREBAY_CHECK(shape.bits >= 1 && shape.bits <= 16 && frames_wanted <= shape.frames);
  // A body for no pixels may be empty; no decoder below expects a frame without pixels.
  if (frames_wanted * shape.frame_samples() == 0) return {};
  if (body.empty()) return Damaged(kPlanesPart, "the body is empty");
  const std::byte kind = body[0];
  body = body.subspan(1);
  if (kind == kPlaneKindWavefront) {
    return DecodeWavefront(shape, body, frames_wanted, isa, out, scratch);
  }
  if (kind == kPlaneKindLearned) {
    if (shape.bits > 8 || body.size() < kShortIdBytes) {
      return Damaged(kPlanesPart,
                     "a learned body is too short, or its samples have more than 8 bits");
    }
    // Networks correct samples of up to 8 bits only: their inputs are bytes.
    const auto id = ByteReader(body).ReadLe<std::uint64_t>();
    const Predictor* const predictor = FindPredictor(predictors, id);
    if (predictor == nullptr) return MissingPredictor(id);
    return DecodeWavefront(shape, body.subspan(kShortIdBytes), frames_wanted, isa, out, scratch,
                           predictor);
  }
  if (kind == kPlaneKindBitPacked) {
    return DecodeBitPacked(shape, body, frames_wanted, isa, out, scratch);
  }
  if (kind == kPlaneKindBlockRans) {
    return DecodeBlockRans(shape, body, frames_wanted, isa, out, scratch);
  }
  ScratchArena arena(scratch);
  const Scratch parts = TakePlaneScratch(shape, arena);
  if (kind == kPlaneKindRaw) {
    if (body.size() != shape.bytes()) return Damaged(kPlanesPart, "it has the wrong length");
    PlaceRaw(shape, body, frames_wanted, out);
  } else if (kind == kPlaneKindZstd) {
    // All frames are inflated even if few are wanted, because zstd's checksum covers all of them.
    FOREBAY_TRY(InflateZstd(body, ZstdChecksum::kRequired, parts.samples, parts.context));
    PlaceSums(shape, parts.samples, frames_wanted, out);
  } else {
    return Damaged(kPlanesPart, "the kind of planes is unknown");
  }
  return {};
}

}  // namespace forebay::compress
