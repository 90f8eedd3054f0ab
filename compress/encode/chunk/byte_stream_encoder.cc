// zstd and LZ4 as the format allows them: one frame with size and checksum, one block. The only
// encoder code that calls these libraries, besides the plane encoders' own sections. MayBeat
// compresses 32 KiB from the middle to tell whether a whole stream is worth the time.
#include "compress/encode/chunk/byte_stream_encoder.h"

#include <lz4.h>
#include <zstd.h>

#include <memory>

#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr int kWindowLog = 22;  // limits::kChunkBytesMax
// Level 1 on a part is taken to be within a factor of two of a high level on the whole.
constexpr std::size_t kProbeBytes = std::size_t{32} << 10;

}  // namespace

std::vector<std::byte> CompressZstd(std::span<const std::byte> bytes, int level) {
  std::vector<std::byte> body(ZSTD_compressBound(bytes.size()));
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  FOREBAY_CHECK(context != nullptr);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  // Readers refuse a larger window (docs/pack_chunk.md, section 8).
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, kWindowLog);
  const std::size_t size =
      ZSTD_compress2(context.get(), body.data(), body.size(), bytes.data(), bytes.size());
  FOREBAY_CHECK(ZSTD_isError(size) == 0);
  body.resize(size);
  return body;
}

std::vector<std::byte> CompressLz4(std::span<const std::byte> bytes) {
  // LZ4 counts in int; a chunk has 4 MiB at most.
  const int bound = LZ4_compressBound(static_cast<int>(bytes.size()));
  std::vector<std::byte> body(static_cast<std::size_t>(bound));
  const int size = LZ4_compress_default(reinterpret_cast<const char*>(bytes.data()),
                                        reinterpret_cast<char*>(body.data()),
                                        static_cast<int>(bytes.size()), bound);
  FOREBAY_CHECK(size > 0);
  body.resize(static_cast<std::size_t>(size));
  return body;
}

bool MayBeat(std::span<const std::byte> bytes, std::size_t other_bytes) {
  // A probe of a small stream would cost as much as compressing it.
  if (bytes.size() <= 2 * kProbeBytes) return true;
  // From the middle: the beginning of an image is often its flattest part.
  const std::span<const std::byte> probe =
      bytes.subspan((bytes.size() - kProbeBytes) / 2, kProbeBytes);
  const std::size_t estimate =
      CompressZstd(probe, 1).size() * (bytes.size() / kProbeBytes) / 2;
  return estimate < other_bytes;
}

EncodedStream EncodeSideStream(std::span<const std::byte> bytes, int level) {
  EncodedStream stream = {.coder = StreamCoder::kZstd, .raw_bytes = bytes.size(), .body = {}};
  stream.body = CompressZstd(bytes, level);
  if (stream.body.size() >= bytes.size()) {
    stream.coder = StreamCoder::kStore;
    stream.body.assign(bytes.begin(), bytes.end());
  }
  return stream;
}

}  // namespace forebay::compress
