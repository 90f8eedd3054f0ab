// The loop that all peers share whose format has no pieces of its own. A piece is coded by itself
// and carries an index entry and a checksum, so that every peer has the random access and the
// integrity that a chunk of a pack has; both count in its size, and the checksum in its time.
// Without this, ratios and speeds of formats with different guarantees would be compared.
#include "bench/codec/piecewise_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/contract/checksum.h"

namespace forebay::bench {
namespace {

struct Piece {
  PieceShape shape;
  std::size_t first_byte = 0;
  std::vector<std::byte> coded;
  std::uint64_t checksum = 0;  // of the decoded bytes
  std::vector<std::uint64_t> frame_checksums;  // likewise, where the codec decodes frames
};

struct Pieces {
  std::size_t frame_bytes = 0;
  std::vector<Piece> list;
};

class PiecewiseDecoder : public ArrayDecoder {
 public:
  PiecewiseDecoder(const Pieces& pieces, std::unique_ptr<PieceCodec> codec)
      : pieces_(pieces), codec_(std::move(codec)) {}

  Status Decode(std::size_t first, std::size_t count, std::span<std::byte> array) override {
    for (std::size_t index = first; index < first + count; ++index) {
      const Piece& piece = pieces_.list.at(index);
      // Straight into its place in the output, so that no peer pays for a copy.
      FOREBAY_TRY(DecodePiece(piece, array.subspan(piece.first_byte, piece.shape.bytes)));
    }
    return {};
  }

  Status DecodeFrame(std::uint32_t frame, std::span<std::byte> out) override {
    const std::size_t begin = frame * pieces_.frame_bytes;
    // A linear search: pieces are few, and the search is short beside a decode.
    for (const Piece& piece : pieces_.list) {
      const std::size_t from = std::max(begin, piece.first_byte);
      const std::size_t to = std::min(begin + out.size(), piece.first_byte + piece.shape.bytes);
      if (from >= to) continue;
      if (!piece.frame_checksums.empty()) return DecodeFrameOf(piece, from, out);
      // A piece that can only be decoded as a whole is decoded as a whole, and the frame is copied
      // out of it. This is what random access costs in such a format.
      scratch_.resize(std::max(scratch_.size(), piece.shape.bytes));
      FOREBAY_TRY(DecodePiece(piece, std::span(scratch_).first(piece.shape.bytes)));
      std::memcpy(out.data() + (from - begin), scratch_.data() + (from - piece.first_byte),
                  to - from);
    }
    return {};
  }

 private:
  Status DecodePiece(const Piece& piece, std::span<std::byte> out) {
    FOREBAY_TRY(codec_->Decode(piece.shape, piece.coded, out));
    // Inside the timing, while the bytes are warm.
    if (Checksum(out) != piece.checksum) {
      return Error(ErrorCode::kDataLoss, "a decoded piece differs from what was encoded");
    }
    return {};
  }

  // Verified by a checksum of its own: that of the piece covers bytes that were not decoded.
  Status DecodeFrameOf(const Piece& piece, std::size_t begin, std::span<std::byte> out) {
    const std::size_t index = (begin - piece.first_byte) / pieces_.frame_bytes;
    FOREBAY_TRY(codec_->DecodeFrame(piece.shape, piece.coded, static_cast<std::uint32_t>(index),
                                    out));
    if (Checksum(out) != piece.frame_checksums.at(index)) {
      return Error(ErrorCode::kDataLoss, "a decoded frame differs from what was encoded");
    }
    return {};
  }

  const Pieces& pieces_;
  std::unique_ptr<PieceCodec> codec_;
  std::vector<std::byte> scratch_;
};

class PiecewiseArray : public EncodedArray {
 public:
  PiecewiseArray(Pieces pieces, std::function<std::unique_ptr<PieceCodec>()> make_codec)
      : pieces_(std::move(pieces)), make_codec_(std::move(make_codec)) {}
  // All that a reader needs to find and verify a piece counts, for every peer alike.
  std::size_t coded_bytes() const override {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces_.list) {
      bytes += piece.coded.size() + kPieceIndexBytes +
               kFrameIndexBytes * piece.frame_checksums.size();
    }
    return bytes;
  }
  std::size_t parts() const override { return pieces_.list.size(); }
  Result<std::unique_ptr<ArrayDecoder>> MakeDecoder() const override {
    return std::make_unique<PiecewiseDecoder>(pieces_, make_codec_());
  }

 private:
  Pieces pieces_;
  std::function<std::unique_ptr<PieceCodec>()> make_codec_;
};

class PiecewisePeer : public Peer {
 public:
  explicit PiecewisePeer(PiecewiseOptions options) : options_(std::move(options)) {}
  std::string name() const override { return options_.name; }
  std::string settings() const override { return options_.settings; }
  bool lossless() const override { return options_.lossless; }
  Status Accepts(const ArrayInfo& info) const override {
    if (info.item_bytes > options_.item_bytes_max) {
      return Error(ErrorCode::kUnimplemented, options_.name + ": no form for " + info.dtype);
    }
    return {};
  }

  Result<std::unique_ptr<EncodedArray>> Encode(const CodecArray& array) const override {
    const std::unique_ptr<PieceCodec> codec = options_.make_codec(array.info);
    Pieces pieces{.frame_bytes = array.info.frame_bytes(), .list = {}};
    const std::uint32_t frames = PieceFrames(array.info);
    // The last piece may be shorter.
    const std::size_t step =
        frames != 0 ? frames * array.info.frame_bytes() : options_.piece_bytes;
    for (std::size_t at = 0; at < array.bytes.size(); at += step) {
      Piece piece;
      piece.first_byte = at;
      piece.shape = {.rows = array.info.rows(),
                     .columns = array.info.columns(),
                     .item_bytes = array.info.item_bytes,
                     .bytes = std::min(step, array.bytes.size() - at)};
      if (frames != 0) {
        piece.shape.frames =
            static_cast<std::uint32_t>(piece.shape.bytes / array.info.frame_bytes());
      }
      const auto raw = std::span<const std::byte>(array.bytes).subspan(at, piece.shape.bytes);
      FOREBAY_ASSIGN(piece.coded, codec->Encode(piece.shape, raw));
      FOREBAY_TRY(Seal(*codec, raw, piece));
      pieces.list.push_back(std::move(piece));
    }
    // Each decoder makes a codec of its own, so that threads share no context.
    return std::make_unique<PiecewiseArray>(
        std::move(pieces),
        [make = options_.make_codec, info = array.info] { return make(info); });
  }

 private:
  // Checksums of what the piece decodes to: of `raw`, but for lossy codecs.
  Status Seal(PieceCodec& codec, std::span<const std::byte> raw, Piece& piece) const {
    std::vector<std::byte> decoded;
    // The bytes that a lossy codec gives back are known only after one decode.
    if (!options_.lossless) {
      decoded.resize(raw.size());
      FOREBAY_TRY(codec.Decode(piece.shape, piece.coded, decoded));
      raw = decoded;
    }
    piece.checksum = Checksum(raw);
    if (codec.decodes_frames() && piece.shape.frames != 0) {
      const std::size_t frame_bytes = raw.size() / piece.shape.frames;
      for (std::uint32_t frame = 0; frame < piece.shape.frames; ++frame) {
        piece.frame_checksums.push_back(
            Checksum(raw.subspan(frame * frame_bytes, frame_bytes)));
      }
    }
    return {};
  }

  // 0: pieces are runs of bytes.
  std::uint32_t PieceFrames(const ArrayInfo& info) const {
    if (!options_.whole_frames) return options_.piece_frames;
    const std::size_t fit = std::max<std::size_t>(1, options_.piece_bytes / info.frame_bytes());
    const std::size_t most = options_.piece_frames != 0 ? options_.piece_frames : fit;
    return static_cast<std::uint32_t>(std::min(fit, most));
  }

  PiecewiseOptions options_;
};

}  // namespace

std::unique_ptr<Peer> MakePiecewisePeer(PiecewiseOptions options) {
  return std::make_unique<PiecewisePeer>(std::move(options));
}

}  // namespace forebay::bench
