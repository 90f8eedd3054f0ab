// Peers that code independent pieces of an array: a shared loop over pieces, each verified with
// XXH3-64 of its decoded bytes while they are warm, so that all peers carry the same integrity.
#pragma once

#include <functional>
#include <vector>

#include "bench/codec/codec_peer.h"

namespace forebay::bench {

// A piece is whole frames, or a run of bytes where `frames` is 0.
struct PieceShape {
  std::uint32_t frames = 0;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::size_t item_bytes = 1;
  std::size_t bytes = 0;
};

// Codes single pieces. One per thread.
class PieceCodec {
 public:
  PieceCodec() = default;
  virtual ~PieceCodec() = default;
  PieceCodec(const PieceCodec&) = delete;
  PieceCodec& operator=(const PieceCodec&) = delete;
  virtual Result<std::vector<std::byte>> Encode(const PieceShape& shape,
                                                std::span<const std::byte> raw) = 0;
  virtual Status Decode(const PieceShape& shape, std::span<const std::byte> coded,
                        std::span<std::byte> out) = 0;

  // Codecs that can stop at a frame, or start at one, answer true: frames asked for alone then
  // come from DecodeFrame, `index` counted within the piece, and carry checksums of their own.
  virtual bool decodes_frames() const { return false; }
  virtual Status DecodeFrame(const PieceShape& /*shape*/, std::span<const std::byte> /*coded*/,
                             std::uint32_t /*index*/, std::span<std::byte> /*out*/) {
    return Error(ErrorCode::kUnimplemented, "this codec decodes whole pieces");
  }
};

struct PiecewiseOptions {
  std::string name = {};
  std::string settings = {};
  std::size_t piece_bytes = 0;      // pieces of so many bytes, or
  std::uint32_t piece_frames = 0;   // of so many frames, or
  bool whole_frames = false;        // of as many frames as `piece_bytes` holds, at least one,
                                    // but no more than `piece_frames` where that is not 0
  std::size_t item_bytes_max = 8;   // largest element this codec knows
  bool lossless = true;
  std::function<std::unique_ptr<PieceCodec>(const ArrayInfo&)> make_codec = {};
};

// The size of a stored piece counts its bytes and kPieceIndexBytes of an index: its offset and
// its checksum; and kFrameIndexBytes a frame where frames have checksums of their own.
inline constexpr std::size_t kPieceIndexBytes = 16;
inline constexpr std::size_t kFrameIndexBytes = 8;

// For `make_codec`: a Codec made from `arguments`, whatever the array.
template <typename Codec, typename... Arguments>
auto AlwaysCodec(Arguments... arguments) {
  return [arguments...](const ArrayInfo& /*info*/) -> std::unique_ptr<PieceCodec> {
    return std::make_unique<Codec>(arguments...);
  };
}

std::unique_ptr<Peer> MakePiecewisePeer(PiecewiseOptions options);

}  // namespace forebay::bench
