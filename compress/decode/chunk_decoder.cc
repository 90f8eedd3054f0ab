#include "compress/decode/chunk_decoder.h"

#include <cstring>
#include <string>

#include "compress/decode/byte_stream.h"
#include "compress/decode/coded_chunk.h"
#include "compress/decode/scratch_arena.h"
#include "compress/decode/strided_copy.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

struct ChunkScratch {
  std::span<std::byte> linear;  // samples before they are dealt to strided memory
  std::span<std::byte> codec;
};

ChunkScratch Take(const ChunkShape& shape, ScratchArena& arena) {
  return {arena.Take<std::byte>(shape.bytes()),
          arena.Take<std::byte>(std::max(CodedChunkScratchBytes(shape),
                                         ByteStreamScratchBytes()))};
}


Status DecodeCoded(const ChunkShape& shape, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   const ChunkScratch& scratch, PredictorList predictors) {
  const std::size_t wanted = range.sample_count * shape.sample_bytes();
  const bool dense = IsDense(shape, range, out);
  const std::span<std::byte> samples =
      dense ? out.memory.first(wanted) : scratch.linear.first(wanted);
  FOREBAY_TRY(DecodeCodedChunk(shape, payload, range.first_sample, range.sample_count, samples,
                               scratch.codec, predictors));
  if (!dense) CopyBox(shape, range, samples, out);
  return {};
}

// zstd and LZ4 are decoded whole, whatever is wanted of them.
Status DecodeBytes(const ChunkShape& shape, StreamCoder coder, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   const ChunkScratch& scratch) {
  const bool whole = range.sample_count == shape.samples && IsDense(shape, range, out);
  const std::span<std::byte> chunk = whole ? out.memory.first(shape.bytes()) : scratch.linear;
  FOREBAY_TRY(DecodeByteStream(coder, payload, chunk, scratch.codec));
  if (!whole) {
    CopyBox(shape, range, chunk.subspan(range.first_sample * shape.sample_bytes()), out);
  }
  return {};
}

}  // namespace

std::size_t ChunkScratchBytes(const ChunkShape& shape) {
  ScratchArena arena;
  Take(shape, arena);
  return arena.bytes();
}

Status DecodeChunk(const ChunkShape& shape, ChunkCodec codec, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   std::span<std::byte> scratch, PredictorList predictors) {
  FOREBAY_TRY(CheckChunkShape(shape));
  FOREBAY_TRY(CheckRange(shape, range, out));
  if (scratch.size() < ChunkScratchBytes(shape)) {
    return Error(ErrorCode::kInvalidArgument,
                 "chunk: " + std::to_string(scratch.size()) + " bytes of scratch memory, " +
                     std::to_string(ChunkScratchBytes(shape)) + " needed");
  }
  ScratchArena arena(scratch);
  const ChunkScratch parts = Take(shape, arena);
  switch (codec) {
    case ChunkCodec::kStore:
      if (payload.size() != shape.bytes()) {
        return Error(ErrorCode::kDataLoss,
                     "stored chunk: " + std::to_string(payload.size()) + " bytes, " +
                         std::to_string(shape.bytes()) + " expected");
      }
      CopyBox(shape, range, payload.subspan(range.first_sample * shape.sample_bytes()), out);
      return {};
    case ChunkCodec::kZstd:
      return DecodeBytes(shape, StreamCoder::kZstd, payload, range, out, parts);
    case ChunkCodec::kLz4:
      return DecodeBytes(shape, StreamCoder::kLz4, payload, range, out, parts);
    case ChunkCodec::kCoded:
      return DecodeCoded(shape, payload, range, out, parts, predictors);
  }
  return Error(ErrorCode::kUnimplemented,
               "chunk codec " + std::to_string(static_cast<int>(codec)) +
                   " is of a newer version; read it with a newer Forebay");
}

}  // namespace forebay::compress
