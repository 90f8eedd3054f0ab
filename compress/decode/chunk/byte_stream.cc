// Decodes a stream of bytes by its coder: stored bytes are copied, zstd and LZ4 go through
// inflate.h. Coders of planes have decoders of their own and never come here. Called by
// coded_chunk.cc for masks, escapes, dictionaries and plain planes, and by chunk_decoder.cc for
// whole chunks.
#include "compress/decode/chunk/byte_stream.h"

#include <algorithm>

#include "compress/decode/inflate.h"
#include "compress/format/damaged.h"
#include "proto/contract/check.h"

namespace forebay::compress {
std::size_t ByteStreamScratchBytes() { return InflateScratchBytes(); }

Status DecodeByteStream(StreamCoder coder, std::span<const std::byte> body,
                        std::span<std::byte> out, std::span<std::byte> scratch) {
  FOREBAY_CHECK(scratch.size() >= ByteStreamScratchBytes());
  switch (coder) {
    case StreamCoder::kStore:
      if (body.size() != out.size()) {
        return Damaged("byte stream", "a stored stream has the wrong size");
      }
      std::copy(body.begin(), body.end(), out.begin());
      return {};
    case StreamCoder::kZstd: return InflateZstd(body, ZstdChecksum::kRequired, out, scratch);
    case StreamCoder::kLz4: return InflateLz4(body, out);
    case StreamCoder::kPlanes:
    case StreamCoder::kConstant: break;
  }
  FOREBAY_CHECK(false);
  return {};
}

}  // namespace forebay::compress
