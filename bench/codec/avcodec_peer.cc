// FFV1 and PNG as libavcodec has them. FFV1 is what archives of films use without loss, PNG what
// data sets of images often are. Their settings are in the report; a setting that is better in
// ratio and in speed would falsify the comparison.
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/opt.h>
}

#include <cstring>
#include <utility>

#include "bench/codec/packet_stream.h"
#include "bench/codec/peer_table.h"

namespace forebay::bench {
namespace {

struct ContextFree {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
};
struct PacketFree {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
struct FrameFree {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};

struct VideoOptions {
  std::string name;
  std::string settings;
  AVCodecID codec_id;
  std::uint32_t gop = 1;
  bool sixteen_bits = false;  // knows little-endian 16-bit gray
  std::vector<std::pair<std::string, std::string>> options = {};
};

class AvcodecPeer : public Peer {
 public:
  explicit AvcodecPeer(VideoOptions options) : options_(std::move(options)) {}
  std::string name() const override { return options_.name; }
  std::string settings() const override { return options_.settings; }
  Status Accepts(const ArrayInfo& info) const override {
    // The peer refuses arrays that the codec cannot code as they are. A conversion would be our
    // work, and its cost would count against the peer.
    const bool fits = info.dtype == "u8" || (info.dtype == "u16" && options_.sixteen_bits);
    if (!fits || info.shape.size() != 3) {
      return Error(ErrorCode::kUnimplemented, options_.name + ": gray sequences only");
    }
    return {};
  }

  Result<std::unique_ptr<EncodedArray>> Encode(const CodecArray& array) const override {
    VideoStream stream{.info = array.info,
                       .codec_id = options_.codec_id,
                       .pixel_format = array.info.item_bytes == 1 ? AV_PIX_FMT_GRAY8
                                                                  : AV_PIX_FMT_GRAY16LE,
                       .extra_data = {},
                       .packets = {}};
    std::unique_ptr<AVCodecContext, ContextFree> context;
    FOREBAY_TRY(Open(stream, context));
    const std::unique_ptr<AVFrame, FrameFree> frame(av_frame_alloc());
    frame->format = stream.pixel_format;
    frame->width = context->width;
    frame->height = context->height;
    // Full range, else gray values below 16 and above 235 would be rescaled and the codec would not
    // be lossless.
    frame->color_range = AVCOL_RANGE_JPEG;
    if (av_frame_get_buffer(frame.get(), 0) < 0) {
      return Error(ErrorCode::kResourceExhausted, "av_frame_get_buffer");
    }
    const std::size_t row_bytes = array.info.columns() * array.info.item_bytes;
    for (std::uint32_t number = 0; number < array.info.frames(); ++number) {
      // The encoder may still refer to the frame before; then this gives it another buffer.
      av_frame_make_writable(frame.get());
      for (std::size_t row = 0; row < array.info.rows(); ++row) {
        std::memcpy(frame->data[0] + static_cast<std::ptrdiff_t>(row) * frame->linesize[0],
                    array.bytes.data() + (number * array.info.rows() + row) * row_bytes,
                    row_bytes);
      }
      frame->pts = number;
      FOREBAY_TRY(Push(*context, frame.get(), stream));
    }
    // Null flushes what the encoder still holds.
    FOREBAY_TRY(Push(*context, nullptr, stream));
    return MakeVideoArray(std::move(stream), array);
  }

 private:
  Status Open(VideoStream& stream, std::unique_ptr<AVCodecContext, ContextFree>& context) const {
    const AVCodec* const codec = avcodec_find_encoder(options_.codec_id);
    if (codec == nullptr) return Error(ErrorCode::kNotFound, "libavcodec lacks " + name());
    context.reset(avcodec_alloc_context3(codec));
    context->width = static_cast<int>(stream.info.columns());
    context->height = static_cast<int>(stream.info.rows());
    context->pix_fmt = static_cast<AVPixelFormat>(stream.pixel_format);
    context->color_range = AVCOL_RANGE_JPEG;
    // The time base has no meaning for single frames; the encoder demands one.
    context->time_base = {1, 25};
    context->gop_size = static_cast<int>(options_.gop);
    context->thread_count = 1;
    // An option that the library does not know is an error: without it the peer would be measured
    // with other settings than the report says.
    for (const auto& [key, value] : options_.options) {
      if (av_opt_set(context.get(), key.c_str(), value.c_str(), AV_OPT_SEARCH_CHILDREN) < 0) {
        return Error(ErrorCode::kInvalidArgument, name() + ": no option " + key + "=" + value);
      }
    }
    if (avcodec_open2(context.get(), codec, nullptr) < 0) {
      return Error(ErrorCode::kInternal, "avcodec_open2 " + name());
    }
    const auto* const extra = reinterpret_cast<const std::byte*>(context->extradata);
    stream.extra_data.assign(extra, extra + context->extradata_size);
    return {};
  }

  static Status Push(AVCodecContext& context, const AVFrame* frame, VideoStream& stream) {
    if (avcodec_send_frame(&context, frame) < 0) {
      return Error(ErrorCode::kInternal, "avcodec_send_frame");
    }
    const std::unique_ptr<AVPacket, PacketFree> packet(av_packet_alloc());
    // One frame may give no packet, or several of earlier frames.
    while (avcodec_receive_packet(&context, packet.get()) == 0) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(packet->data);
      stream.packets.push_back({.bytes = {bytes, bytes + packet->size},
                                .presentation = packet->pts,
                                .closed = (packet->flags & AV_PKT_FLAG_KEY) != 0});
      av_packet_unref(packet.get());
    }
    return {};
  }

  VideoOptions options_;
};

}  // namespace

std::unique_ptr<Peer> MakeFfv1Peer(bool range_coder, std::uint32_t gop) {
  const std::string coder = range_coder ? "range_def" : "rice";
  return std::make_unique<AvcodecPeer>(VideoOptions{
      .name = range_coder ? "ffv1_range" : "ffv1_golomb",
      .settings = "libavcodec FFV1 level 3, coder " + coder + ", context 0, 4 slices, GOP " +
                  std::to_string(gop) + "; one thread",
      .codec_id = AV_CODEC_ID_FFV1,
      .gop = gop,
      .sixteen_bits = range_coder,  // libavcodec has no other coder for them
      .options = {{"level", "3"},
                  {"coder", coder},
                  // The small context model, which decodes faster than the large one.
                  {"context", "0"},
                  {"slices", "4"},
                  {"slicecrc", "0"}}});  // verified by the harness, as all peers are
}

std::unique_ptr<Peer> MakePngPeer() {
  return std::make_unique<AvcodecPeer>(
      VideoOptions{.name = "png",
                   .settings = "libavcodec PNG, mixed filters; one thread",
                   .codec_id = AV_CODEC_ID_PNG,
                   .gop = 1,
                   .options = {{"pred", "mixed"}}});
}

}  // namespace forebay::bench
