// A video codec's stream as independent parts: runs from one closed packet to the next. libavcodec
// decodes all of these peers, on one thread, and every frame is compared with its checksum while it
// is warm, as pieces of other peers are. So the figure holds what a program pays that gets its
// frames from libavcodec, the copy out of its frame included.
#include "bench/codec/packet_stream.h"

extern "C" {
#include <libavcodec/avcodec.h>
}

#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/codec/piecewise_peer.h"
#include "proto/contract/checksum.h"

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

struct Run {
  std::size_t first_packet = 0;
  std::size_t packets = 0;
  std::uint32_t first_frame = 0;
};

struct VideoFile {
  VideoStream stream;
  std::vector<Run> runs;
  std::vector<std::uint64_t> checksums;  // one a frame
};

// H.264's decoder delivers gray as 4:2:0 with a constant chroma; the first plane is what counts.
bool IsWanted(int format, int wanted) {
  return format == wanted || (wanted == AV_PIX_FMT_GRAY8 &&
                              (format == AV_PIX_FMT_YUV420P || format == AV_PIX_FMT_YUVJ420P));
}

Error AvError(const std::string& what, int code) {
  std::string text(AV_ERROR_MAX_STRING_SIZE, '\0');
  av_strerror(code, text.data(), text.size());
  text.resize(std::strlen(text.c_str()));
  return Error(ErrorCode::kInternal, what + ": " + text);
}

class VideoDecoder : public ArrayDecoder {
 public:
  explicit VideoDecoder(const VideoFile& file) : file_(file) {}

  Status Open() {
    const AVCodec* const codec =
        avcodec_find_decoder(static_cast<AVCodecID>(file_.stream.codec_id));
    // The suite reports this error as a missing peer.
    if (codec == nullptr) return Error(ErrorCode::kNotFound, "libavcodec lacks a decoder");
    context_.reset(avcodec_alloc_context3(codec));
    // Threads are the harness's business: each has a decoder of its own.
    context_->thread_count = 1;
    context_->width = static_cast<int>(file_.stream.info.columns());
    context_->height = static_cast<int>(file_.stream.info.rows());
    const auto& extra = file_.stream.extra_data;
    if (!extra.empty()) {
      context_->extradata =
          // libavcodec frees it with av_free, and reads beyond its end.
          static_cast<std::uint8_t*>(av_mallocz(extra.size() + AV_INPUT_BUFFER_PADDING_SIZE));
      std::memcpy(context_->extradata, extra.data(), extra.size());
      context_->extradata_size = static_cast<int>(extra.size());
    }
    if (const int code = avcodec_open2(context_.get(), codec, nullptr); code < 0) {
      return AvError("avcodec_open2", code);
    }
    // libavcodec copies packets that are not its own: these are made once, outside the timing.
    for (const VideoPacket& packet : file_.stream.packets) {
      packets_.emplace_back(av_packet_alloc());
      av_new_packet(packets_.back().get(), static_cast<int>(packet.bytes.size()));
      // av_new_packet has padded the packet with zeros, as decoders demand.
      std::memcpy(packets_.back()->data, packet.bytes.data(), packet.bytes.size());
      packets_.back()->pts = packet.presentation;
      if (packet.closed) packets_.back()->flags |= AV_PKT_FLAG_KEY;
    }
    return {};
  }

  Status Decode(std::size_t first, std::size_t count, std::span<std::byte> array) override {
    const Run& last = file_.runs.at(first + count - 1);
    return DecodePackets(file_.runs.at(first).first_packet, last.first_packet + last.packets,
                         file_.runs[first].first_frame, ~std::uint32_t{0}, array);
  }

  // Decoding stops as soon as the frame is out.
  Status DecodeFrame(std::uint32_t frame, std::span<std::byte> out) override {
    const auto after = std::ranges::upper_bound(file_.runs, frame, {}, &Run::first_frame);
    const Run& run = *std::prev(after);
    return DecodePackets(run.first_packet, run.first_packet + run.packets, run.first_frame, frame,
                         out);
  }

 private:
  // `only`: the one frame that is wanted, or all of them.
  Status DecodePackets(std::size_t from, std::size_t to, std::uint32_t frame, std::uint32_t only,
                       std::span<std::byte> out) {
    // A run must not depend on what was decoded before.
    avcodec_flush_buffers(context_.get());
    // The loop makes one step more than there are packets. Its null packet tells the decoder that
    // no more packets come, and the decoder then gives the frames that it still holds.
    for (std::size_t index = from; index <= to; ++index) {
      const AVPacket* const packet = index < to ? packets_[index].get() : nullptr;
      if (const int code = avcodec_send_packet(context_.get(), packet); code < 0) {
        return AvError("avcodec_send_packet", code);
      }
      while (true) {
        const int code = avcodec_receive_frame(context_.get(), frame_.get());
        if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) break;
        if (code < 0) return AvError("avcodec_receive_frame", code);
        if (only == ~std::uint32_t{0}) {
          FOREBAY_TRY(Deliver(frame, out.subspan(frame * file_.stream.info.frame_bytes())));
        } else if (frame == only) {
          return Deliver(frame, out);
        }
        // Frames come out in the order in which they are shown, whatever the order of packets is.
        ++frame;
      }
    }
    return {};
  }

  Status Deliver(std::uint32_t number, std::span<std::byte> out) {
    const ArrayInfo& info = file_.stream.info;
    // Another size or format would make the copy below read beyond the frame.
    if (number >= file_.checksums.size() || !IsWanted(frame_->format, file_.stream.pixel_format) ||
        frame_->width != static_cast<int>(info.columns()) ||
        frame_->height != static_cast<int>(info.rows())) {
      return Error(ErrorCode::kDataLoss, "libavcodec delivered another kind of frame");
    }
    const std::size_t row_bytes = info.columns() * info.item_bytes;
    // Row by row, because libavcodec pads rows.
    for (std::size_t row = 0; row < info.rows(); ++row) {
      std::memcpy(out.data() + row * row_bytes,
                  frame_->data[0] + static_cast<std::ptrdiff_t>(row) * frame_->linesize[0],
                  row_bytes);
    }
    if (Checksum(out.first(info.frame_bytes())) != file_.checksums[number]) {
      return Error(ErrorCode::kDataLoss, "a decoded frame differs from what was encoded");
    }
    return {};
  }

  const VideoFile& file_;
  std::unique_ptr<AVCodecContext, ContextFree> context_;
  std::unique_ptr<AVFrame, FrameFree> frame_{av_frame_alloc()};
  std::vector<std::unique_ptr<AVPacket, PacketFree>> packets_;
};

class VideoArray : public EncodedArray {
 public:
  explicit VideoArray(VideoFile file) : file_(std::move(file)) {}
  std::size_t coded_bytes() const override {
    std::size_t bytes = file_.stream.extra_data.size();
    for (const VideoPacket& packet : file_.stream.packets) bytes += packet.bytes.size();
    // An index of runs, and a checksum a frame: what a container adds.
    return bytes + kPieceIndexBytes * file_.runs.size() + 8 * file_.checksums.size();
  }
  std::size_t parts() const override { return file_.runs.size(); }
  Result<std::unique_ptr<ArrayDecoder>> MakeDecoder() const override {
    auto decoder = std::make_unique<VideoDecoder>(file_);
    FOREBAY_TRY(decoder->Open());
    return decoder;
  }

 private:
  VideoFile file_;
};

}  // namespace

Result<std::unique_ptr<EncodedArray>> MakeVideoArray(VideoStream stream,
                                                     const CodecArray& array) {
  VideoFile file;
  for (std::size_t index = 0; index < stream.packets.size(); ++index) {
    // The packet's number is that of its first frame, because a closed run shows as many frames as
    // it has packets. The comparison of numbers below makes sure.
    if (stream.packets[index].closed) {
      file.runs.push_back({.first_packet = index,
                           .first_frame = static_cast<std::uint32_t>(index)});
    }
    if (file.runs.empty()) return Error(ErrorCode::kInternal, "the first packet is not closed");
    ++file.runs.back().packets;
  }
  if (stream.packets.size() != array.info.frames()) {
    return Error(ErrorCode::kInternal, "as many packets as frames were expected");
  }
  const std::size_t frame_bytes = array.info.frame_bytes();
  for (std::uint32_t frame = 0; frame < array.info.frames(); ++frame) {
    const std::span<const std::byte> bytes(array.bytes);
    file.checksums.push_back(Checksum(bytes.subspan(frame * frame_bytes, frame_bytes)));
  }
  file.stream = std::move(stream);
  return std::make_unique<VideoArray>(std::move(file));
}

}  // namespace forebay::bench
