// The plane codecs without stages and container. The difference to forebay_PROFILE is what stages
// and chunks cost, and the choice of kernels shows what smaller vectors cost. No service uses
// planes alone, so no goal is judged by this.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "bench/codec/peer_table.h"
#include "bench/codec/profile_names.h"
#include "compress/decode/isa.h"
#include "compress/decode/plane_decoder.h"

namespace forebay::bench {
namespace {

constexpr std::size_t kChunkBytesMax = std::size_t{4} << 20;

// The number of valid bits of little-endian samples of one or two bytes, at least 1.
std::uint8_t ValidBits(std::span<const std::byte> raw, std::size_t item_bytes) {
  unsigned highest = 1;
  // All samples are or-ed together: only the highest bit that any of them uses counts.
  for (std::size_t at = 0; at < raw.size(); at += item_bytes) {
    unsigned value = std::to_integer<unsigned>(raw[at]);
    if (item_bytes == 2) value |= std::to_integer<unsigned>(raw[at + 1]) << 8;
    highest |= value;
  }
  return static_cast<std::uint8_t>(std::bit_width(highest));
}

Result<compress::Isa> IsaOf(const std::string& isa) {
  const compress::Isa best = compress::BestIsa();
  if (isa.empty()) return best;
  compress::Isa wanted = compress::Isa::kScalar;
  if (isa == "avx2") {
    wanted = compress::Isa::kAvx2;
  } else if (isa == "avx512") {
    wanted = compress::Isa::kAvx512;
  } else if (isa != "scalar") {
    return Error(ErrorCode::kInvalidArgument, "no kernels " + isa + "; scalar, avx2, avx512");
  }
  // Asked for kernels that the processor lacks: an error and not a fallback.
  if (wanted > best) return Error(ErrorCode::kUnimplemented, "this processor has no " + isa);
  return wanted;
}

// A piece is the number of valid bits, then the body.
class PlanesCodec : public PieceCodec {
 public:
  PlanesCodec(compress::Profile profile, compress::Isa isa)
      : profile_(profile), isa_(isa) {}

  Result<std::vector<std::byte>> Encode(const PieceShape& shape,
                                        std::span<const std::byte> raw) override {
    std::uint8_t bits = ValidBits(raw, shape.item_bytes);
    // The plane codec takes up to 8 bits as bytes and more as words, so words need at least 9 bits.
    if (shape.item_bytes == 2) bits = std::max<std::uint8_t>(bits, 9);
    FOREBAY_ASSIGN(std::vector<std::byte> coded,
                   compress::EncodePlanes(Planes(shape, bits), raw, profile_));
    coded.insert(coded.begin(), std::byte{bits});
    return coded;
  }

  Status Decode(const PieceShape& shape, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    const compress::PlaneShape planes =
        Planes(shape, std::to_integer<std::uint8_t>(coded.front()));
    const std::size_t scratch_bytes = compress::PlaneScratchBytes(planes);
    if (scratch_.size() < scratch_bytes) scratch_.resize(scratch_bytes);
    return compress::DecodePlanes(planes, coded.subspan(1), shape.frames, out,
                                  std::span(scratch_).first(scratch_bytes), isa_);
  }

  // The frames before it in the piece come along.
  bool decodes_frames() const override { return true; }
  Status DecodeFrame(const PieceShape& shape, std::span<const std::byte> coded,
                     std::uint32_t index, std::span<std::byte> out) override {
    const compress::PlaneShape planes =
        Planes(shape, std::to_integer<std::uint8_t>(coded.front()));
    const std::size_t scratch_bytes = compress::PlaneScratchBytes(planes);
    // A plane is predicted from the frame before it, so the frames before the wanted one are
    // decoded too. This is the price of random access within a group.
    const std::size_t wanted = (index + std::size_t{1}) * out.size();
    if (scratch_.size() < scratch_bytes) scratch_.resize(scratch_bytes);
    if (frames_.size() < shape.bytes) frames_.resize(shape.bytes);
    FOREBAY_TRY(compress::DecodePlanes(planes, coded.subspan(1), index + 1,
                                       std::span(frames_).first(wanted),
                                       std::span(scratch_).first(scratch_bytes), isa_));
    std::memcpy(out.data(), frames_.data() + wanted - out.size(), out.size());
    return {};
  }

 private:
  static compress::PlaneShape Planes(const PieceShape& shape, std::uint8_t bits) {
    return {.frames = shape.frames, .rows = shape.rows, .columns = shape.columns, .bits = bits};
  }

  compress::Profile profile_;
  compress::Isa isa_;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> frames_;
};

}  // namespace

Result<std::unique_ptr<Peer>> MakePlanesPeer(const ForebayOptions& options) {
  FOREBAY_ASSIGN(const compress::Profile profile, ProfileOf(options.profile));
  FOREBAY_ASSIGN(const compress::Isa isa, IsaOf(options.isa));
  return MakePiecewisePeer(
      {.name = "planes_" + options.profile,
       .settings = "plane codec alone, GOP " + std::to_string(options.gop) +
                   (options.isa.empty() ? "" : ", kernels " + options.isa),
       .piece_bytes = kChunkBytesMax,
       .piece_frames = options.gop,
       .whole_frames = true,
       .item_bytes_max = 2,
       .make_codec = AlwaysCodec<PlanesCodec>(profile, isa)});
}

}  // namespace forebay::bench
