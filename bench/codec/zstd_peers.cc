// zstd by itself, and behind the simplest temporal prediction: the frame before. The first shows
// what a general compressor gives, the second what of our gain a user could have with ten lines of
// code. If a profile of ours is not better than delta_zstd, its stages are not worth their
// complexity.
#include <zstd.h>

#include <cstring>
#include <utility>

#include "bench/codec/peer_table.h"

namespace forebay::bench {
namespace {

struct ContextFree {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

// zstd returns sizes and errors in one number.
Result<std::size_t> Checked(std::size_t code) {
  if (ZSTD_isError(code) != 0) return Error(ErrorCode::kInternal, ZSTD_getErrorName(code));
  return code;
}

class ZstdCodec : public PieceCodec {
 public:
  explicit ZstdCodec(int level) : level_(level) {}

  Result<std::vector<std::byte>> Encode(const PieceShape& /*shape*/,
                                        std::span<const std::byte> raw) override {
    std::vector<std::byte> coded(ZSTD_compressBound(raw.size()));
    FOREBAY_ASSIGN(const std::size_t size,
                   Checked(ZSTD_compressCCtx(encoder_.get(), coded.data(), coded.size(),
                                             raw.data(), raw.size(), level_)));
    coded.resize(size);
    return coded;
  }

  Status Decode(const PieceShape& /*shape*/, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    FOREBAY_ASSIGN(const std::size_t size,
                   Checked(ZSTD_decompressDCtx(decoder_.get(), out.data(), out.size(),
                                               coded.data(), coded.size())));
    // A shorter output would leave bytes of the poison, which the hash finds too; this names the
    // cause.
    if (size != out.size()) return Error(ErrorCode::kDataLoss, "zstd: another size");
    return {};
  }

 private:
  int level_;
  // Contexts are kept from piece to piece, which zstd recommends and which makes it faster.
  std::unique_ptr<ZSTD_CCtx, ContextFree> encoder_{ZSTD_createCCtx()};
  std::unique_ptr<ZSTD_DCtx, ContextFree> decoder_{ZSTD_createDCtx()};
};

// Adds or subtracts, element by element and wrapping, the frame before each frame but the first.
template <typename Element>
void AddPrevious(std::span<std::byte> bytes, std::size_t frame_bytes) {
  const std::size_t step = frame_bytes / sizeof(Element);
  for (std::size_t at = frame_bytes; at < bytes.size(); at += frame_bytes) {
    auto* const now = reinterpret_cast<Element*>(bytes.data() + at);
    const auto* const before = reinterpret_cast<const Element*>(bytes.data() + at - frame_bytes);
    for (std::size_t i = 0; i < step; ++i) now[i] = static_cast<Element>(now[i] + before[i]);
  }
}

template <typename Element>
void SubtractPrevious(std::span<std::byte> bytes, std::size_t frame_bytes) {
  const std::size_t step = frame_bytes / sizeof(Element);
  // The loop goes from the last frame to the first, because a frame is replaced by its difference
  // to the frame before it, which must still be whole then.
  for (std::size_t at = bytes.size() - frame_bytes; at > 0; at -= frame_bytes) {
    auto* const now = reinterpret_cast<Element*>(bytes.data() + at);
    const auto* const before = reinterpret_cast<const Element*>(bytes.data() + at - frame_bytes);
    for (std::size_t i = 0; i < step; ++i) now[i] = static_cast<Element>(now[i] - before[i]);
  }
}

class DeltaZstdCodec : public PieceCodec {
 public:
  explicit DeltaZstdCodec(int level) : zstd_(level) {}

  Result<std::vector<std::byte>> Encode(const PieceShape& shape,
                                        std::span<const std::byte> raw) override {
    std::vector<std::byte> residual(raw.begin(), raw.end());
    const std::size_t frame_bytes = raw.size() / shape.frames;
    // Wrapping arithmetic of the element's width loses nothing. Floats are taken as integers of the
    // same bits.
    switch (shape.item_bytes) {
      case 1: SubtractPrevious<std::uint8_t>(residual, frame_bytes); break;
      case 2: SubtractPrevious<std::uint16_t>(residual, frame_bytes); break;
      default: SubtractPrevious<std::uint32_t>(residual, frame_bytes); break;
    }
    return zstd_.Encode(shape, residual);
  }

  Status Decode(const PieceShape& shape, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    FOREBAY_TRY(zstd_.Decode(shape, coded, out));
    const std::size_t frame_bytes = out.size() / shape.frames;
    switch (shape.item_bytes) {
      case 1: AddPrevious<std::uint8_t>(out, frame_bytes); break;
      case 2: AddPrevious<std::uint16_t>(out, frame_bytes); break;
      default: AddPrevious<std::uint32_t>(out, frame_bytes); break;
    }
    return {};
  }

 private:
  ZstdCodec zstd_;
};

}  // namespace

std::unique_ptr<Peer> MakeZstdPeer(int level) {
  return MakePiecewisePeer(
      {.name = "zstd_" + std::to_string(level),
       .settings = "zstd " ZSTD_VERSION_STRING " level " + std::to_string(level) + ", 2 MiB pieces",
       .piece_bytes = std::size_t{2} << 20,
       .make_codec = AlwaysCodec<ZstdCodec>(level)});
}

std::unique_ptr<Peer> MakeDeltaZstdPeer(int level, std::uint32_t gop) {
  const std::string pieces = gop != 0 ? "GOP " + std::to_string(gop) + ", a piece a GOP"
                                      : "pieces of the frames that 2 MiB hold";
  return MakePiecewisePeer(
      {.name = "delta_zstd_" + std::to_string(level) + (gop != 0 ? "" : "_2mib"),
       .settings = "previous-frame difference, zstd " ZSTD_VERSION_STRING " level " +
                   std::to_string(level) + ", " + pieces,
       .piece_bytes = std::size_t{2} << 20,
       .piece_frames = gop,
       .whole_frames = gop == 0,
       .make_codec = AlwaysCodec<DeltaZstdCodec>(level)});
}

}  // namespace forebay::bench
