#include "compress/decode/byte_stream.h"

#include <lz4.h>
#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_initStaticDCtx, ZSTD_getFrameHeader
#include <zstd.h>

#include <algorithm>
#include <string>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kAlignment = 64;

Error Damaged(const std::string& what) {
  return Error(ErrorCode::kDataLoss, "byte stream: " + what);
}

Status DecodeZstd(std::span<const std::byte> body, std::span<std::byte> out,
                  std::span<std::byte> scratch) {
  ZSTD_frameHeader header;
  if (ZSTD_getFrameHeader(&header, body.data(), body.size()) != 0 ||
      header.frameType != ZSTD_frame) {
    return Damaged("no zstd frame");
  }
  if (header.frameContentSize != out.size()) return Damaged("zstd frame of another size");
  if (header.windowSize > limits::kChunkBytesMax) return Damaged("zstd window too large");
  if (header.dictID != 0) return Damaged("zstd frame asks for a dictionary");
  if (header.checksumFlag == 0) return Damaged("zstd frame without a checksum");
  if (ZSTD_findFrameCompressedSize(body.data(), body.size()) != body.size()) {
    return Damaged("zstd frame does not end with its stream");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
  scratch = scratch.subspan((kAlignment - address % kAlignment) % kAlignment);
  ZSTD_DCtx* const context = ZSTD_initStaticDCtx(scratch.data(), scratch.size());
  FOREBAY_CHECK(context != nullptr);
  const std::size_t bytes =
      ZSTD_decompressDCtx(context, out.data(), out.size(), body.data(), body.size());
  if (ZSTD_isError(bytes) != 0) return Damaged(ZSTD_getErrorName(bytes));
  if (bytes != out.size()) return Damaged("zstd frame of another size");
  return {};
}

}  // namespace

std::size_t ByteStreamScratchBytes() { return ZSTD_estimateDCtxSize() + kAlignment; }

Status DecodeByteStream(StreamCoder coder, std::span<const std::byte> body,
                        std::span<std::byte> out, std::span<std::byte> scratch) {
  FOREBAY_CHECK(scratch.size() >= ByteStreamScratchBytes());
  switch (coder) {
    case StreamCoder::kStore:
      if (body.size() != out.size()) return Damaged("stored stream of another size");
      std::copy(body.begin(), body.end(), out.begin());
      return {};
    case StreamCoder::kZstd: return DecodeZstd(body, out, scratch);
    case StreamCoder::kLz4: {
      // LZ4 counts in int; LZ4_compressBound of the largest chunk is far below its maximum.
      if (body.size() > 2 * limits::kChunkBytesMax) return Damaged("LZ4 block too long");
      const int bytes = LZ4_decompress_safe(reinterpret_cast<const char*>(body.data()),
                                            reinterpret_cast<char*>(out.data()),
                                            static_cast<int>(body.size()),
                                            static_cast<int>(out.size()));
      if (bytes < 0 || static_cast<std::size_t>(bytes) != out.size()) {
        return Damaged("LZ4 block is damaged or of another size");
      }
      return {};
    }
    case StreamCoder::kPlanes:
    case StreamCoder::kConstant: break;
  }
  FOREBAY_CHECK(false);
  return {};
}

}  // namespace forebay::compress
