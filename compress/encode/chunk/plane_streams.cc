// Turns codes into streams of planes: splits them into channels and planes, chooses a colour space
// by estimate, and encodes each plane as a constant, with a plane codec, with zstd or LZ4, or
// stored. Of two codings of nearly the same size the one that decodes faster wins. Called by
// coded_chunk_encoder.cc.
#include "compress/encode/chunk/plane_streams.h"

#include <algorithm>
#include <utility>

#include "compress/encode/block/block_rans_encoder.h"
#include "compress/encode/chunk/plane_cost.h"
#include "compress/format/chunk/colour.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// What a coding must gain over the next one that decodes faster: one part in so many.
constexpr std::size_t kGainShareMin = 64;

// Wavefront-coded planes take about five times as long to decode as block-rANS ones. Where both are
// open, to profile auto and within an error bound, that must save a part of the bytes: one in so
// many.
constexpr std::size_t kPaceShare = 8;
constexpr std::size_t kSmallPlanesBytes = std::size_t{8} << 10;

// Bits [shift, shift + bits) of each code, as samples of one or two bytes.
std::vector<std::byte> SamplesOf(std::span<const std::uint64_t> codes, unsigned shift,
                                 std::uint8_t bits) {
  const std::size_t width = bits <= 8 ? 1 : 2;
  const std::uint64_t mask = (1ULL << bits) - 1;
  std::vector<std::byte> samples(codes.size() * width);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint64_t sample = codes[i] >> shift & mask;
    samples[i * width] = static_cast<std::byte>(sample & 0xFF);
    if (width == 2) samples[i * width + 1] = static_cast<std::byte>(sample >> 8);
  }
  return samples;
}

// Whether `size` is enough smaller than the size of a coding that decodes faster.
// Callers try the codings that decode fast first, so that a slower one must earn its place.
bool Beats(std::size_t size, std::size_t cheaper) {
  return size < cheaper - cheaper / kGainShareMin;
}

// Returns `planes`, which a dense profile has chosen, or block-rANS ones if they are nearly as
// small (kPaceShare), because they decode faster.
std::vector<std::byte> PaceWithinBound(const PlaneShape& shape, std::span<const std::byte> samples,
                                       std::vector<std::byte> planes) {
  std::vector<std::byte> block_rans = EncodeBlockRans(shape, samples, BlockRansEffort::kRefined);
  block_rans.insert(block_rans.begin(), kPlaneKindBlockRans);
  std::size_t bearable = planes.size();
  // Only wavefront planes decode so much slower; with other kinds the size decides.
  if (planes[0] == kPlaneKindWavefront) bearable += bearable / kPaceShare;
  return block_rans.size() < bearable ? block_rans : planes;
}

// Encodes planes for the profile. Dense profiles also try what `balanced` would take, because their
// longer search may end with a worse result on planes that are drawn or small.
Result<std::vector<std::byte>> EncodePlanesWell(const PlaneShape& shape,
                                                std::span<const std::byte> samples,
                                                const StreamAims& aims) {
  const Profile profile = aims.profile;
  FOREBAY_ASSIGN(std::vector<std::byte> planes,
                 EncodePlanes(shape, samples, profile, aims.predictor));
  // These profiles try nothing else.
  if (profile == Profile::kFast || profile == Profile::kBalanced) return planes;
  if (aims.bounded && profile != Profile::kLearned) {
    return PaceWithinBound(shape, samples, std::move(planes));
  }
  // What was drawn, or is small; elsewhere only the pace could tell for it.
  const bool may_find_less = planes.size() <= std::max(samples.size() / 8, kSmallPlanesBytes);
  if (profile != Profile::kAuto && !may_find_less) return planes;
  FOREBAY_ASSIGN(std::vector<std::byte> balanced,
                 EncodePlanes(shape, samples, Profile::kBalanced));
  std::size_t bearable = planes.size();
  if (profile == Profile::kAuto) bearable += bearable / kPaceShare;
  return balanced.size() < bearable ? balanced : planes;
}

}  // namespace

std::vector<std::uint32_t> BitsOf(std::span<const std::uint64_t> codes, unsigned shift,
                                  std::uint32_t bits) {
  std::vector<std::uint32_t> part(codes.size());
  const std::uint64_t mask = (1ULL << bits) - 1;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    part[i] = static_cast<std::uint32_t>(codes[i] >> shift & mask);
  }
  return part;
}

std::vector<std::vector<std::uint64_t>> SplitChannels(const ChunkGeometry& geometry,
                                                      std::span<const std::uint64_t> codes) {
  std::vector<std::vector<std::uint64_t>> channels(geometry.channels);
  for (std::size_t c = 0; c < channels.size(); ++c) {
    std::vector<std::uint64_t>& channel = channels[c];
    channel.reserve(codes.size() / channels.size());
    // Channels alternate in runs of `inner` elements: 1 where the channel axis is the last one.
    // With one channel this is the whole sample, so the loop below copies the codes as they are.
    const std::size_t inner = geometry.inner_extent;
    const std::size_t begin = geometry.channels == 1 ? 0 : c * inner;
    for (std::size_t at = begin; at < codes.size(); at += channels.size() * inner) {
      const auto from = codes.begin() + static_cast<std::ptrdiff_t>(at);
      channel.insert(channel.end(), from, from + static_cast<std::ptrdiff_t>(inner));
    }
  }
  return channels;
}

std::uint8_t SplitBits(std::uint32_t bits, std::array<std::uint8_t, kPlanesMax>& plane_bits) {
  std::uint8_t count = 0;
  // The lowest bits, which are hard to predict, go to planes of 8 bits; the highest 9 to 16 stay
  // together.
  for (; bits > 16; bits -= 8) plane_bits[count++] = 8;
  if (bits > 0) plane_bits[count++] = static_cast<std::uint8_t>(bits);
  return count;
}

std::size_t EstimateCodeBytes(const ChunkGeometry& geometry, std::uint32_t bits,
                              std::span<const std::uint64_t> codes) {
  std::array<std::uint8_t, kPlanesMax> plane_bits{};
  const std::uint8_t planes = SplitBits(bits, plane_bits);
  const PlaneShape shape = geometry.Plane(8);
  std::size_t bytes = 0;
  for (const auto& channel : SplitChannels(geometry, codes)) {
    unsigned shift = 0;
    for (std::size_t p = 0; p < planes; ++p) {
      const std::size_t stored = channel.size() * (plane_bits[p] <= 8 ? 1 : 2);
      // A plane that cannot be compressed is stored, so no estimate may be larger than that.
      bytes += std::min(stored, EstimatePlaneBytes(shape, plane_bits[p],
                                                   BitsOf(channel, shift, plane_bits[p])));
      shift += plane_bits[p];
    }
  }
  return bytes;
}

ColourKind ChooseColour(const ChunkGeometry& geometry, std::uint32_t bits,
                        const std::array<std::vector<std::uint32_t>, 3>& channels) {
  FOREBAY_CHECK(bits <= 16);
  ColourKind best = ColourKind::kNone;
  std::size_t best_bytes = 0;
  for (const ColourKind kind : {ColourKind::kNone, ColourKind::kGreen, ColourKind::kYCoCg}) {
    std::array<std::vector<std::uint32_t>, 3> planes = channels;
    if (kind != ColourKind::kNone) {
      ForwardColour(kind, bits, planes[0].size(), planes[0].data(), planes[1].data(),
                    planes[2].data());
    }
    std::size_t bytes = 0;
    for (const auto& plane : planes) {
      bytes += EstimatePlaneBytes(geometry.Plane(8), bits, plane);
    }
    // A transform must earn the pass that undoes it.
    if (kind == ColourKind::kNone || Beats(bytes, best_bytes)) {
      best = kind;
      best_bytes = bytes;
    }
  }
  return best;
}

Result<EncodedStream> EncodeSampleStream(const ChunkGeometry& geometry, std::uint8_t bits,
                                         std::span<const std::byte> samples,
                                         const StreamAims& aims) {
  const std::size_t width = bits <= 8 ? 1 : 2;
  EncodedStream stream = {.coder = StreamCoder::kStore, .raw_bytes = samples.size(), .body = {}};
  const std::span<const std::byte> first = samples.first(width);
  // All samples are equal if each equals the one before it: one comparison of the memory with
  // itself.
  if (std::equal(samples.begin() + static_cast<std::ptrdiff_t>(width), samples.end(),
                 samples.begin())) {
    stream.coder = StreamCoder::kConstant;
    stream.body.assign(first.begin(), first.end());
    return stream;
  }
  std::vector<std::byte> planes;
  std::size_t planes_bytes = samples.size();
  if (geometry.allows_planes) {
    FOREBAY_ASSIGN(planes, EncodePlanesWell(geometry.Plane(bits), samples, aims));
    planes_bytes = std::min(planes_bytes, planes.size());
  }
  std::size_t best = samples.size();
  const bool fast = aims.profile == Profile::kFast;  // whose readers cannot wait for zstd
  const bool hurried = aims.profile == Profile::kBalanced;  // does not try what will hardly win
  const std::size_t bar =
      hurried ? planes_bytes / 2 : BarBesidePlanes(samples.size(), planes_bytes);
  if (fast || MayBeat(samples, bar)) {
    std::vector<std::byte> bytes =
        fast ? CompressLz4(samples) : CompressZstd(samples, hurried ? 3 : 9);
    if (Beats(bytes.size(), best)) {
      best = bytes.size();
      stream.coder = fast ? StreamCoder::kLz4 : StreamCoder::kZstd;
      stream.body = std::move(bytes);
    }
  }
  // `best` is the size as bytes, compressed or not. Planes must save more than a sixty-fourth of
  // it.
  if (!planes.empty() && Beats(planes.size(), best)) {
    stream.coder = StreamCoder::kPlanes;
    stream.body = std::move(planes);
  }
  if (stream.coder == StreamCoder::kStore) stream.body.assign(samples.begin(), samples.end());
  return stream;
}

Result<EncodedStream> EncodePlaneStream(const ChunkGeometry& geometry, std::uint8_t bits,
                                        unsigned shift, std::span<const std::uint64_t> codes,
                                        const StreamAims& aims) {
  return EncodeSampleStream(geometry, bits, SamplesOf(codes, shift, bits), aims);
}

}  // namespace forebay::compress
