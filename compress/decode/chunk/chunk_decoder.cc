// Decodes one chunk, as a box of samples or as samples with a place each. Checks what the caller
// gives, then does what the chunk's codec asks: stored bytes are copied, zstd and LZ4 are decoded
// whole, coded chunks (coded_chunk.h) as far as the last sample that is wanted. Decodes into the
// caller's memory where the wanted samples lie there one after the other, else into scratch, from
// where they are copied.
#include "compress/decode/chunk/chunk_decoder.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "compress/decode/chunk/byte_stream.h"
#include "compress/decode/chunk/coded_chunk.h"
#include "compress/decode/chunk/strided_copy.h"
#include "compress/decode/isa.h"
#include "compress/decode/scratch_arena.h"
#include "compress/format/damaged.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

struct ChunkScratch {
  std::span<std::byte> linear;  // samples before they are copied to strided memory
  std::span<std::byte> codec;
};

// Parts of the scratch memory; with an arena that only counts, their size.
ChunkScratch TakeChunkScratch(const ChunkShape& shape, ScratchArena& arena) {
  // The same scratch serves every codec: a caller takes it once, before it knows what a chunk's
  // head says.
  return {arena.Take<std::byte>(shape.bytes()),
          arena.Take<std::byte>(std::max(CodedChunkScratchBytes(shape),
                                                     ByteStreamScratchBytes()))};
}

Status CheckScratch(const ChunkShape& shape, std::span<const std::byte> scratch) {
  if (scratch.size() >= ChunkScratchBytes(shape)) return {};
  return Error(ErrorCode::kInvalidArgument,
               "chunk: " + std::to_string(scratch.size()) + " bytes of scratch memory, " +
                   std::to_string(ChunkScratchBytes(shape)) + " needed");
}

Status CheckStored(const ChunkShape& shape, std::span<const std::byte> payload) {
  // Without this check a short payload would be read beyond its end.
  if (payload.size() == shape.bytes()) return {};
  return Damaged("stored chunk", std::to_string(payload.size()) + " bytes, " +
                                     std::to_string(shape.bytes()) + " expected");
}

Error UnknownCodec(ChunkCodec codec) {
  return Error(ErrorCode::kUnimplemented,
               "chunk codec " + std::to_string(static_cast<int>(codec)) +
                   " is of a newer version; read it with a newer Forebay");
}

// Decodes a coded chunk up to the last sample that is wanted; samples before the first one are
// decoded, as others are predicted from them, and not output.
Status DecodeCoded(const ChunkShape& shape, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   const ChunkScratch& scratch, PredictorList predictors, Isa isa) {
  const std::size_t wanted = range.sample_count * shape.sample_bytes();
  // Decoding straight into the caller's memory saves a pass over it. It also means that a chunk
  // which turns out to be damaged leaves part of its samples there; the caller does not use them.
  const bool dense = IsDense(shape, range, out);
  const std::span<std::byte> samples =
      dense ? out.memory.first(wanted) : scratch.linear.first(wanted);
  FOREBAY_TRY(DecodeCodedChunk(shape, payload, range.first_sample + range.sample_count,
                               FrameOutput(samples, range.first_sample), scratch.codec,
                               predictors, isa));
  if (!dense) CopyBox(shape, range, samples, out);
  return {};
}

// zstd and LZ4 payloads are decoded whole, however few samples are wanted.
Status DecodeBytes(const ChunkShape& shape, StreamCoder coder, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   const ChunkScratch& scratch) {
  // The output can take the whole chunk only if all samples are wanted.
  const bool whole = range.sample_count == shape.samples && IsDense(shape, range, out);
  const std::span<std::byte> chunk = whole ? out.memory.first(shape.bytes()) : scratch.linear;
  FOREBAY_TRY(DecodeByteStream(coder, payload, chunk, scratch.codec));
  if (!whole) {
    CopyBox(shape, range, chunk.subspan(range.first_sample * shape.sample_bytes()), out);
  }
  return {};
}

Status CheckPlaces(const ChunkShape& shape, std::span<const std::span<std::byte>> places) {
  const auto fits = [&](std::span<std::byte> place) {
    // An empty place means that the sample is not wanted.
    return place.empty() || place.size() == shape.sample_bytes();
  };
  if (places.size() <= shape.samples && std::ranges::all_of(places, fits)) return {};
  return Error(ErrorCode::kInvalidArgument,
               "chunk: " + std::to_string(places.size()) + " places for " +
                   std::to_string(shape.samples) + " samples, or places not of " +
                   std::to_string(shape.sample_bytes()) + " bytes");
}

// Whether the places are of all samples and lie one after the other.
bool FillsRun(const ChunkShape& shape, std::span<const std::span<std::byte>> places) {
  return places.size() == shape.samples && !places[0].empty() &&
         FrameOutput::Each(places).RunLength(0, places.size(), shape.sample_bytes()) ==
             places.size();
}

// Copies each sample of a whole chunk to its place; samples without one are skipped.
void CopySamples(std::span<const std::byte> chunk,
                 std::span<const std::span<std::byte>> places) {
  std::size_t at = 0;
  for (const std::span<std::byte> place : places) {
    // A place has exactly a sample's size (CheckPlaces), so this is the sample's offset in the
    // chunk.
    if (!place.empty()) std::memcpy(place.data(), chunk.data() + at * place.size(), place.size());
    ++at;
  }
}

}  // namespace

std::size_t ChunkScratchBytes(const ChunkShape& shape) {
  ScratchArena arena;
  TakeChunkScratch(shape, arena);
  return arena.bytes();
}

Status DecodeChunk(const ChunkShape& shape, ChunkCodec codec, std::span<const std::byte> payload,
                   const ChunkRange& range, const StridedOutput& out,
                   std::span<std::byte> scratch, PredictorList predictors, Isa isa) {
  FOREBAY_TRY(CheckChunkShape(shape));
  // All checks come before the payload is looked at: the codecs below rely on the shape and on the
  // sizes of all memory.
  FOREBAY_TRY(CheckRange(shape, range, out));
  FOREBAY_TRY(CheckScratch(shape, scratch));
  ScratchArena arena(scratch);
  const ChunkScratch parts = TakeChunkScratch(shape, arena);
  switch (codec) {
    case ChunkCodec::kStore:
      FOREBAY_TRY(CheckStored(shape, payload));
      CopyBox(shape, range, payload.subspan(range.first_sample * shape.sample_bytes()), out);
      return {};
    case ChunkCodec::kZstd:
      return DecodeBytes(shape, StreamCoder::kZstd, payload, range, out, parts);
    case ChunkCodec::kLz4:
      return DecodeBytes(shape, StreamCoder::kLz4, payload, range, out, parts);
    case ChunkCodec::kCoded:
      return DecodeCoded(shape, payload, range, out, parts, predictors, isa);
  }
  return UnknownCodec(codec);
}

Status DecodeChunkSamples(const ChunkShape& shape, ChunkCodec codec,
                          std::span<const std::byte> payload,
                          std::span<const std::span<std::byte>> places,
                          std::span<std::byte> scratch, PredictorList predictors,
                          Isa isa) {
  FOREBAY_TRY(CheckChunkShape(shape));
  FOREBAY_TRY(CheckPlaces(shape, places));
  FOREBAY_TRY(CheckScratch(shape, scratch));
  // Coded chunks are decoded up to the last wanted sample: leave out those behind it.
  while (!places.empty() && places.back().empty()) places = places.first(places.size() - 1);
  if (places.empty()) return {};
  ScratchArena arena(scratch);
  const ChunkScratch parts = TakeChunkScratch(shape, arena);
  switch (codec) {
    case ChunkCodec::kStore:
      FOREBAY_TRY(CheckStored(shape, payload));
      CopySamples(payload, places);
      return {};
    case ChunkCodec::kZstd:
    case ChunkCodec::kLz4: {
      const auto coder = codec == ChunkCodec::kZstd ? StreamCoder::kZstd : StreamCoder::kLz4;
      if (FillsRun(shape, places)) {
        return DecodeByteStream(coder, payload, {places[0].data(), shape.bytes()}, parts.codec);
      }
      FOREBAY_TRY(DecodeByteStream(coder, payload, parts.linear, parts.codec));
      CopySamples(parts.linear, places);
      return {};
    }
    case ChunkCodec::kCoded:
      return DecodeCodedChunk(shape, payload, static_cast<std::uint32_t>(places.size()),
                              FrameOutput::Each(places), parts.codec, predictors, isa);
  }
  return UnknownCodec(codec);
}

}  // namespace forebay::compress
