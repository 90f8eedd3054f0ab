// Undoes zstd and LZ4, strictly: one frame or block that fills the output exactly and ends with the
// input, without a dictionary, with a window of at most a chunk. zstd's context lies in the
// caller's scratch memory, so that decoding allocates nothing.
#include "compress/decode/inflate.h"

#include <lz4.h>
#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_initStaticDCtx, ZSTD_getFrameHeader
#include <zstd.h>

#include <string_view>

#include "compress/format/damaged.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kByteStreamPart = "byte stream";  // in errors
constexpr std::size_t kAlignment = 64;
// LZ4 counts in int, and no block of a chunk's bytes is as long as this.
constexpr std::size_t kLz4BytesMax = 2 * limits::kChunkBytesMax;

Result<ZSTD_frameHeader> ReadFrameHeader(std::span<const std::byte> body) {
  ZSTD_frameHeader header;
  // A result above 0 means that the header is cut off. Skippable frames hold no data and are
  // refused.
  if (ZSTD_getFrameHeader(&header, body.data(), body.size()) != 0 ||
      header.frameType != ZSTD_frame) {
    return Damaged(kByteStreamPart, "the bytes are no zstd frame");
  }
  return header;
}

}  // namespace

std::size_t InflateScratchBytes() {
  // Asked once: small chunks notice the call.
  static const std::size_t bytes = ZSTD_estimateDCtxSize() + kAlignment;
  return bytes;
}

Result<std::size_t> ZstdContentBytes(std::span<const std::byte> body) {
  FOREBAY_ASSIGN(const ZSTD_frameHeader header, ReadFrameHeader(body));
  // The caller compares the number with its own limit: a frame may state any size.
  if (header.frameContentSize == ZSTD_CONTENTSIZE_UNKNOWN) {
    return Damaged(kByteStreamPart, "the zstd frame does not state its size");
  }
  return static_cast<std::size_t>(header.frameContentSize);
}

Status InflateZstd(std::span<const std::byte> body, ZstdChecksum checksum,
                   std::span<std::byte> out, std::span<std::byte> scratch) {
  FOREBAY_CHECK(scratch.size() >= InflateScratchBytes());
  FOREBAY_ASSIGN(const ZSTD_frameHeader header, ReadFrameHeader(body));
  if (header.frameContentSize != out.size()) {
    return Damaged(kByteStreamPart, "the zstd frame has the wrong size");
  }
  // The format's limit: a reader that decodes piece by piece needs no more memory than a chunk has.
  if (header.windowSize > limits::kChunkBytesMax) {
    return Damaged(kByteStreamPart, "the zstd window is too large");
  }
  if (header.dictID != 0) return Damaged(kByteStreamPart, "the zstd frame asks for a dictionary");
  if (checksum == ZstdChecksum::kRequired && header.checksumFlag == 0) {
    return Damaged(kByteStreamPart, "the zstd frame has no checksum");
  }
  // zstd would also accept further frames behind this one, and skip those that hold no samples.
  if (ZSTD_findFrameCompressedSize(body.data(), body.size()) != body.size()) {
    return Damaged(kByteStreamPart, "the zstd frame does not end with its stream");
  }
  // zstd wants its context aligned; scratch memory may begin anywhere.
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
  scratch = scratch.subspan((kAlignment - address % kAlignment) % kAlignment);
  ZSTD_DCtx* const context = ZSTD_initStaticDCtx(scratch.data(), scratch.size());
  FOREBAY_CHECK(context != nullptr);
  // zstd never writes beyond the size of the output, whatever the frame holds.
  const std::size_t bytes =
      ZSTD_decompressDCtx(context, out.data(), out.size(), body.data(), body.size());
  if (ZSTD_isError(bytes) != 0) return Damaged(kByteStreamPart, ZSTD_getErrorName(bytes));
  if (bytes != out.size()) return Damaged(kByteStreamPart, "the zstd frame has the wrong size");
  return {};
}

Status InflateLz4(std::span<const std::byte> body, std::span<std::byte> out) {
  FOREBAY_CHECK(out.size() <= kLz4BytesMax);
  if (body.size() > kLz4BytesMax) return Damaged(kByteStreamPart, "the LZ4 block is too long");
  const int bytes = LZ4_decompress_safe(reinterpret_cast<const char*>(body.data()),
                                        reinterpret_cast<char*>(out.data()),
                                        static_cast<int>(body.size()),
                                        static_cast<int>(out.size()));
  if (bytes < 0 || static_cast<std::size_t>(bytes) != out.size()) {
    return Damaged(kByteStreamPart, "the LZ4 block is damaged or has the wrong size");
  }
  return {};
}

}  // namespace forebay::compress
