// Streams of bytes inside a chunk: stored, zstd or LZ4.
#pragma once

#include <cstddef>
#include <span>

#include "compress/format/chunk/chunk_header.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Scratch memory of DecodeByteStream.
std::size_t ByteStreamScratchBytes();

// Decodes `body` to exactly `out.size()` bytes. Allocates nothing. kPlanes and kConstant are no
// byte streams: a programming error. Zstd frames end in a checksum (inflate.h). Errors: kDataLoss.
Status DecodeByteStream(StreamCoder coder, std::span<const std::byte> body,
                        std::span<std::byte> out, std::span<std::byte> scratch);

}  // namespace forebay::compress
