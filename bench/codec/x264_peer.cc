// H.264 without loss: libx264 encodes, libavcodec decodes. It is a widely used codec with
// prediction in time, and its decoders are tuned for every processor. qp 0 is lossless for 8-bit
// gray; if a decoded frame differed, its checksum would end the contender.
#include <cstdint>

extern "C" {
#include <libavcodec/avcodec.h>
#include <x264.h>
}

#include <utility>

#include "bench/codec/packet_stream.h"
#include "bench/codec/peer_table.h"

namespace forebay::bench {
namespace {

struct EncoderFree {
  void operator()(x264_t* encoder) const { x264_encoder_close(encoder); }
};

class X264Peer : public Peer {
 public:
  X264Peer(std::string preset, std::uint32_t gop) : preset_(std::move(preset)), gop_(gop) {}
  std::string name() const override { return "x264_" + preset_; }
  std::string settings() const override {
    return "libx264 " + std::to_string(X264_BUILD) + " qp 0 preset " + preset_ + ", GOP " +
           std::to_string(gop_) + ", gray full range; libavcodec decodes on one thread";
  }
  // Arrays of other shapes are refused and not folded: x264 would predict between frames that do
  // not follow each other.
  Status Accepts(const ArrayInfo& info) const override {
    if (info.item_bytes != 1 || info.shape.size() != 3) {
      return Error(ErrorCode::kUnimplemented, name() + ": 8-bit gray sequences only");
    }
    return {};
  }

  Result<std::unique_ptr<EncodedArray>> Encode(const CodecArray& array) const override {
    x264_param_t parameters;
    FOREBAY_TRY(Configure(array.info, parameters));
    const std::unique_ptr<x264_t, EncoderFree> encoder(x264_encoder_open(&parameters));
    if (encoder == nullptr) return Error(ErrorCode::kInternal, "x264_encoder_open");
    VideoStream stream{.info = array.info,
                       .codec_id = AV_CODEC_ID_H264,
                       .pixel_format = AV_PIX_FMT_GRAY8,
                       .extra_data = {},
                       .packets = {}};
    // The picture points into the array, so the encoder copies nothing more than it must.
    x264_picture_t picture;
    x264_picture_init(&picture);
    picture.img.i_csp = X264_CSP_I400;
    picture.img.i_plane = 1;
    picture.img.i_stride[0] = static_cast<int>(array.info.columns());
    const std::size_t frame_bytes = array.info.frame_bytes();
    for (std::uint32_t frame = 0; frame < array.info.frames(); ++frame) {
      // libx264 only reads the plane.
      picture.img.plane[0] = reinterpret_cast<std::uint8_t*>(
          const_cast<std::byte*>(array.bytes.data() + frame * frame_bytes));
      picture.i_pts = frame;
      FOREBAY_TRY(Push(encoder.get(), &picture, stream));
    }
    // The encoder looks ahead, so frames are still inside when the last one has been given.
    while (x264_encoder_delayed_frames(encoder.get()) > 0) {
      FOREBAY_TRY(Push(encoder.get(), nullptr, stream));
    }
    return MakeVideoArray(std::move(stream), array);
  }

 private:
  Status Configure(const ArrayInfo& info, x264_param_t& parameters) const {
    if (x264_param_default_preset(&parameters, preset_.c_str(), nullptr) != 0) {
      return Error(ErrorCode::kInvalidArgument, "x264 has no preset " + preset_);
    }
    parameters.i_width = static_cast<int>(info.columns());
    parameters.i_height = static_cast<int>(info.rows());
    // Gray only. As 4:2:0 the encoder would have to code a chroma that no array has.
    parameters.i_csp = X264_CSP_I400;
    parameters.i_bitdepth = 8;
    parameters.i_threads = 1;
    parameters.i_lookahead_threads = 1;
    parameters.i_fps_num = 25;
    parameters.i_fps_den = 1;
    // The caller gives our own length of a group of pictures, so both codecs allow the same random
    // access.
    parameters.i_keyint_max = static_cast<int>(gop_);
    parameters.rc.i_rc_method = X264_RC_CQP;
    parameters.rc.i_qp_constant = 0;
    parameters.vui.b_fullrange = 1;
    // Start codes and headers in the stream, so that each run decodes by itself.
    parameters.b_annexb = 1;
    parameters.b_repeat_headers = 1;
    parameters.i_log_level = X264_LOG_ERROR;
    return {};
  }

  static Status Push(x264_t* encoder, x264_picture_t* picture, VideoStream& stream) {
    x264_nal_t* units = nullptr;
    int unit_count = 0;
    x264_picture_t out;
    // The packet of a call may be of an earlier picture, because the encoder looks ahead.
    const int size = x264_encoder_encode(encoder, &units, &unit_count, picture, &out);
    if (size < 0) return Error(ErrorCode::kInternal, "x264_encoder_encode");
    if (size == 0) return {};
    const auto* const bytes = reinterpret_cast<const std::byte*>(units[0].p_payload);
    stream.packets.push_back({.bytes = {bytes, bytes + size},
                              .presentation = out.i_pts,
                              .closed = out.i_type == X264_TYPE_IDR});
    return {};
  }

  std::string preset_;
  std::uint32_t gop_;
};

}  // namespace

std::unique_ptr<Peer> MakeX264Peer(const std::string& preset, std::uint32_t gop) {
  return std::make_unique<X264Peer>(preset, gop);
}

}  // namespace forebay::bench
