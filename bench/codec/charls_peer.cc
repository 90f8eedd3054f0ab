// JPEG-LS, one image a frame: the standard for lossless images of low complexity, coded by CharLS.
// It predicts within a frame only, so on sequences it shows what prediction in time is worth.
#include <charls/charls.h>

#include <utility>

#include "bench/codec/peer_table.h"

namespace forebay::bench {
namespace {

struct CoderFree {
  void operator()(charls_jpegls_encoder* coder) const { charls_jpegls_encoder_destroy(coder); }
  void operator()(charls_jpegls_decoder* coder) const { charls_jpegls_decoder_destroy(coder); }
};

// Every call answers with a code; the first that is not success ends the contender.
Status Checked(charls_jpegls_errc code) {
  if (code != charls_jpegls_errc::success) {
    return Error(ErrorCode::kInternal, std::string("CharLS: ") + charls_get_error_message(code));
  }
  return {};
}

class JpegLsCodec : public PieceCodec {
 public:
  Result<std::vector<std::byte>> Encode(const PieceShape& shape,
                                        std::span<const std::byte> raw) override {
    // A coder per image; making it is part of what the peer costs.
    const std::unique_ptr<charls_jpegls_encoder, CoderFree> coder(charls_jpegls_encoder_create());
    // A gray image has one component. Depth of 16 bits is coded as such.
    const charls_frame_info frame{.width = shape.columns,
                                  .height = shape.rows,
                                  .bits_per_sample = static_cast<int>(shape.item_bytes * 8),
                                  .component_count = 1};
    FOREBAY_TRY(Checked(charls_jpegls_encoder_set_frame_info(coder.get(), &frame)));
    std::size_t size = 0;
    FOREBAY_TRY(
        Checked(charls_jpegls_encoder_get_estimated_destination_size(coder.get(), &size)));
    // More than the estimate, because noise can grow.
    std::vector<std::byte> coded(size + raw.size());
    FOREBAY_TRY(Checked(charls_jpegls_encoder_set_destination_buffer(coder.get(), coded.data(),
                                                                     coded.size())));
    FOREBAY_TRY(Checked(charls_jpegls_encoder_encode_from_buffer(coder.get(), raw.data(),
                                                                 raw.size(), 0)));
    FOREBAY_TRY(Checked(charls_jpegls_encoder_get_bytes_written(coder.get(), &size)));
    coded.resize(size);
    return coded;
  }

  // The size is in the stream's own header, so nothing but the output's size has to fit.
  Status Decode(const PieceShape& /*shape*/, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    const std::unique_ptr<charls_jpegls_decoder, CoderFree> coder(charls_jpegls_decoder_create());
    FOREBAY_TRY(Checked(
        charls_jpegls_decoder_set_source_buffer(coder.get(), coded.data(), coded.size())));
    FOREBAY_TRY(Checked(charls_jpegls_decoder_read_header(coder.get())));
    return Checked(
        charls_jpegls_decoder_decode_to_buffer(coder.get(), out.data(), out.size(), 0));
  }
};

}  // namespace

std::unique_ptr<Peer> MakeJpegLsPeer() {
  return MakePiecewisePeer({.name = "jpeg_ls",
                            .settings = std::string("CharLS ") + charls_get_version_string() +
                                        ", an image a frame",
                            .piece_frames = 1,
                            .item_bytes_max = 2,
                            .make_codec = AlwaysCodec<JpegLsCodec>()});
}

}  // namespace forebay::bench
