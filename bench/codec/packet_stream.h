// Arrays as packets of a video codec: what the x264, FFV1 and PNG peers share.
#pragma once

#include <vector>

#include "bench/codec/codec_peer.h"

namespace forebay::bench {

// Packets in decoding order. A run of them from one `closed` packet to the next decodes by
// itself into frames that follow each other.
struct VideoPacket {
  std::vector<std::byte> bytes;
  std::int64_t presentation = 0;  // frame number
  bool closed = false;            // starts such a run
};

struct VideoStream {
  ArrayInfo info;
  int codec_id = 0;        // AVCodecID
  int pixel_format = 0;    // AVPixelFormat the decoder must deliver
  std::vector<std::byte> extra_data;
  std::vector<VideoPacket> packets;
};

// Checks that the stream can be cut into runs. The decoder is libavcodec, on one thread, each
// frame verified with XXH3-64 against `array`'s.
Result<std::unique_ptr<EncodedArray>> MakeVideoArray(VideoStream stream, const CodecArray& array);

}  // namespace forebay::bench
