// Blosc as numpy users meet it, and CCSDS 121 as satellites do: two fast codecs for arrays of
// numbers that do not look at images. They mark the fast end of the picture of ratio against speed.
#include <blosc.h>
#include <libaec.h>

#include <utility>

#include "bench/codec/peer_table.h"

namespace forebay::bench {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{2} << 20;
constexpr int kBloscLevel = 5;

class BloscCodec : public PieceCodec {
 public:
  Result<std::vector<std::byte>> Encode(const PieceShape& shape,
                                        std::span<const std::byte> raw) override {
    std::vector<std::byte> coded(raw.size() + BLOSC_MAX_OVERHEAD);
    // blosc_compress_ctx takes the number of threads, 1; the functions without _ctx share a pool of
    // threads.
    const int size =
        blosc_compress_ctx(kBloscLevel, BLOSC_SHUFFLE, shape.item_bytes, raw.size(), raw.data(),
                           coded.data(), coded.size(), BLOSC_LZ4_COMPNAME, 0, 1);
    if (size <= 0) return Error(ErrorCode::kInternal, "blosc: " + std::to_string(size));
    coded.resize(static_cast<std::size_t>(size));
    return coded;
  }

  Status Decode(const PieceShape& /*shape*/, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    // The size is compared, because blosc returns what its header says.
    const int size = blosc_decompress_ctx(coded.data(), out.data(), out.size(), 1);
    if (size < 0 || static_cast<std::size_t>(size) != out.size()) {
      return Error(ErrorCode::kDataLoss, "blosc: " + std::to_string(size));
    }
    return {};
  }
};

class AecCodec : public PieceCodec {
 public:
  Result<std::vector<std::byte>> Encode(const PieceShape& shape,
                                        std::span<const std::byte> raw) override {
    // Room for data that do not compress; libaec fails if the output does not fit.
    std::vector<std::byte> coded(raw.size() + raw.size() / 4 + 4096);
    // libaec reads through const, but its struct has one type for both directions.
    aec_stream stream = Stream(shape, {const_cast<std::byte*>(raw.data()), raw.size()}, coded);
    if (const int code = aec_buffer_encode(&stream); code != AEC_OK) {
      return Error(ErrorCode::kInternal, "libaec: " + std::to_string(code));
    }
    coded.resize(stream.total_out);
    return coded;
  }

  Status Decode(const PieceShape& shape, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    aec_stream stream = Stream(shape, {const_cast<std::byte*>(coded.data()), coded.size()}, out);
    const int code = aec_buffer_decode(&stream);
    // libaec stops quietly if the input ends early, so the number of bytes is compared.
    if (code != AEC_OK || stream.total_out != out.size()) {
      return Error(ErrorCode::kDataLoss, "libaec: " + std::to_string(code));
    }
    return {};
  }

 private:
  static aec_stream Stream(const PieceShape& shape, std::span<std::byte> in,
                           std::span<std::byte> out) {
    aec_stream stream{};
    stream.bits_per_sample = static_cast<unsigned>(shape.item_bytes * 8);
    // The settings are in the report.
    stream.block_size = 16;
    stream.rsi = 128;
    stream.flags = AEC_DATA_PREPROCESS;
    stream.next_in = reinterpret_cast<const unsigned char*>(in.data());
    stream.avail_in = in.size();
    stream.next_out = reinterpret_cast<unsigned char*>(out.data());
    stream.avail_out = out.size();
    return stream;
  }
};

}  // namespace

std::unique_ptr<Peer> MakeBloscPeer() {
  return MakePiecewisePeer({.name = "blosc_lz4",
                            .settings = "Blosc " BLOSC_VERSION_STRING
                                        " LZ4 level 5, byte shuffle, 2 MiB pieces, one thread",
                            .piece_bytes = kPieceBytes,
                            .make_codec = AlwaysCodec<BloscCodec>()});
}

std::unique_ptr<Peer> MakeAecPeer() {
  return MakePiecewisePeer({.name = "libaec",
                            .settings = "CCSDS 121, block 16, interval 128, 2 MiB pieces",
                            .piece_bytes = kPieceBytes,
                            .item_bytes_max = 4,
                            .make_codec = AlwaysCodec<AecCodec>()});
}

}  // namespace forebay::bench
