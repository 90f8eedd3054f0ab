// Every place of a pack where zstd or LZ4 is undone takes one frame or block from its first byte
// to its last, as docs/pack_chunk.md and docs/pack_planes.md say, and nothing else; so do masks.
#include <lz4.h>
#include <zstd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/decode/plane_decoder.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/plane/block_format.h"
#include "compress/format/plane/block_rans_format.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

using Bytes = std::vector<std::byte>;

constexpr PlaneShape kPlane = {.frames = 2, .rows = 32, .columns = 64, .bits = 8};
const ChunkShape kShape = {.dtype = Dtype::kU8, .samples = 2, .rank = 2, .extent = {32, 64, 1, 1}};

struct FrameOptions {
  int checksum = 1, content_size = 1;
};

Bytes Frame(std::span<const std::byte> content, FrameOptions options = {}) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, options.checksum);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, options.content_size);
  Bytes frame(ZSTD_compressBound(content.size()));
  frame.resize(ZSTD_compress2(context.get(), frame.data(), frame.size(), content.data(),
                              content.size()));
  return frame;
}

Bytes Block(std::span<const std::byte> content) {
  Bytes block(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(content.size()))));
  const int bytes = LZ4_compress_default(reinterpret_cast<const char*>(content.data()),
                                         reinterpret_cast<char*>(block.data()),
                                         static_cast<int>(content.size()),
                                         static_cast<int>(block.size()));
  block.resize(static_cast<std::size_t>(bytes));
  return block;
}

Bytes Joined(const Bytes& first, const Bytes& second) {
  Bytes joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  return joined;
}

// A frame that decoders of files pass over.
Bytes Skippable() {
  ByteWriter writer;
  writer.Le(std::uint32_t{0x184D2A50});
  writer.Le(std::uint32_t{2});
  writer.Le(std::uint16_t{0});
  return writer.Release();
}

// `frame`, which now asks for dictionary 7.
Bytes WithDictionary(Bytes frame) {
  constexpr std::size_t kDescriptor = 4;
  const bool has_window = (frame[kDescriptor] & std::byte{0x20}) == std::byte{0};
  frame[kDescriptor] |= std::byte{1};
  frame.insert(frame.begin() + (has_window ? 6 : 5), std::byte{7});
  return frame;
}

Status DecodeAll(ChunkCodec codec, std::span<const std::byte> payload) {
  Bytes out(kShape.bytes()), scratch(ChunkScratchBytes(kShape));
  const ChunkRange whole = ChunkRange::Whole(kShape);
  return DecodeChunk(kShape, codec, payload, whole, StridedOutput::Dense(kShape, whole, out),
                     scratch);
}

Status DecodePlane(std::byte kind, std::span<const std::byte> rest) {
  Bytes body = {kind};
  body.insert(body.end(), rest.begin(), rest.end());
  Bytes out(kPlane.bytes()), scratch(PlaneScratchBytes(kPlane));
  return DecodePlanes(kPlane, body, kPlane.frames, out, scratch);
}

// A chunk that is one plane, whose samples are coded by `coder`.
Status DecodeStream(StreamCoder coder, std::span<const std::byte> body) {
  CodedHead head;
  head.stages.plane_count = 1;
  head.stages.plane_bits[0] = 8;
  head.stream_count = 1;
  head.streams[0] = {.coder = coder,
                     .raw_bytes = static_cast<std::uint32_t>(kShape.bytes()), .body = body};
  return DecodeAll(ChunkCodec::kCoded, SerialiseChunk(head));
}

// Block-rANS planes without classes: all blocks of residuals 0, nothing in the other sections.
Status DecodeBlockRansSide(std::span<const std::byte> section) {
  ByteWriter body;
  body.Le(kBlockRansCompressedSide);
  body.Le(static_cast<std::uint32_t>(section.size()));
  body.Le(std::uint32_t{0});
  body.Le(std::uint32_t{0});
  body.Bytes(section);
  body.Bytes(Bytes(kBlockRansLanes, std::byte{0}));
  body.Bytes(Bytes(kBlockRansLanes, std::byte{1}));
  return DecodePlane(kPlaneKindBlockRans, body.bytes());
}

Status DecodeBitPackedSections(std::uint8_t flags, std::span<const std::byte> codes,
                               std::span<const std::byte> planes) {
  ByteWriter body;
  body.Le(flags);
  body.Le(static_cast<std::uint32_t>(codes.size()));
  body.Bytes(codes);
  body.Bytes(planes);
  return DecodePlane(kPlaneKindBitPacked, body.bytes());
}

// A place where a stream is undone.
struct Site {
  std::string name;
  std::size_t content_bytes = 0;  // that its stream decodes to
  bool needs_checksum = true;
  std::function<Status(std::span<const std::byte>)> decode;
};

constexpr std::size_t kBlocks = 2 * (32 / kBlockRows) * (64 / kBlockColumns);

std::vector<Site> ZstdSites() {
  return {{.name = "chunk",
           .content_bytes = kShape.bytes(),
           .decode = [](auto body) { return DecodeAll(ChunkCodec::kZstd, body); }},
          {.name = "stream",
           .content_bytes = kShape.bytes(),
           .decode = [](auto body) { return DecodeStream(StreamCoder::kZstd, body); }},
          {.name = "plane",
           .content_bytes = kPlane.bytes(),
           .decode = [](auto body) { return DecodePlane(kPlaneKindZstd, body); }},
          {.name = "side of block-rANS planes",
           .content_bytes = 1 + kBlocks,
           .needs_checksum = false,
           .decode = DecodeBlockRansSide}};
}

std::vector<Site> Lz4Sites() {
  return {
      {.name = "chunk",
       .content_bytes = kShape.bytes(),
       .decode = [](auto body) { return DecodeAll(ChunkCodec::kLz4, body); }},
      {.name = "stream",
       .content_bytes = kShape.bytes(),
       .decode = [](auto body) { return DecodeStream(StreamCoder::kLz4, body); }},
      {.name = "block bytes of bit-packed planes",
       .content_bytes = kBlocks,
       .decode =
           [](auto body) { return DecodeBitPackedSections(kBitPackedCompressedCodes, body, {}); }},
      {.name = "bit-packed planes",
       .content_bytes = kBlocks * sizeof(std::uint64_t),
       .decode = [](auto body) {
         // A plane in every block.
         return DecodeBitPackedSections(kBitPackedCompressedPlanes, Bytes(kBlocks, std::byte{8}),
                                        body);
       }}};
}

void ExpectDamaged(const Site& site, const Bytes& body, const char* what) {
  const Status status = site.decode(body);
  ASSERT_FALSE(status.has_value()) << site.name << ": " << what << " is accepted";
  EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss) << site.name << ": " << what;
}

TEST(StrictStreams, ZstdIsOneFrameWithItsSizeAndChecksum) {
  for (const Site& site : ZstdSites()) {
    const Bytes content(site.content_bytes), half(site.content_bytes / 2);
    const Bytes rest(site.content_bytes - half.size()), longer(site.content_bytes + 1);
    const Bytes good = Frame(content);
    EXPECT_TRUE(site.decode(good).has_value()) << site.name;
    ExpectDamaged(site, Joined(Frame(half), Frame(rest)), "a frame for each half");
    ExpectDamaged(site, Joined(good, Frame({})), "an empty frame behind");
    ExpectDamaged(site, Joined(Skippable(), good), "a frame to skip before");
    ExpectDamaged(site, Joined(good, Skippable()), "a frame to skip behind");
    ExpectDamaged(site, Joined(good, {std::byte{0}}), "a byte behind");
    ExpectDamaged(site, Frame(content, {.content_size = 0}), "a frame without its size");
    ExpectDamaged(site, WithDictionary(good), "a dictionary");
    ExpectDamaged(site, Frame(longer), "a byte more");
    ExpectDamaged(site, Frame(std::span(content).first(site.content_bytes - 1)), "a byte less");
    Bytes other_checksum = good;
    other_checksum.back() ^= std::byte{1};
    ExpectDamaged(site, other_checksum, "another checksum");
    const Bytes unchecked = Frame(content, {.checksum = 0});
    if (site.needs_checksum) {
      ExpectDamaged(site, unchecked, "a frame without a checksum");
    } else {
      EXPECT_TRUE(site.decode(unchecked).has_value()) << site.name;
    }
  }
}

TEST(StrictStreams, Lz4IsOneBlock) {
  for (const Site& site : Lz4Sites()) {
    const Bytes content(site.content_bytes), longer(site.content_bytes + 1);
    const Bytes good = Block(content);
    EXPECT_TRUE(site.decode(good).has_value()) << site.name;
    ExpectDamaged(site, Joined(good, {std::byte{0}}), "a byte behind");
    ExpectDamaged(site, Joined(good, good), "a block behind");
    ExpectDamaged(site, Bytes(good.begin(), good.end() - 1), "a block cut off");
    ExpectDamaged(site, Block(longer), "a byte more");
    ExpectDamaged(site, Block(std::span(content).first(site.content_bytes - 1)), "a byte less");
  }
}

// Two samples of four elements, all codes 0, with the runs of a mask.
ErrorCode DecodeMasked(const std::vector<std::uint8_t>& runs, std::uint32_t samples_wanted) {
  const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 2, .rank = 1, .extent = {4, 1, 1, 1}};
  CodedHead head;
  head.stages.mask_count = 1;
  head.stages.masks[0].pattern = 7;
  head.stream_count = 1;
  head.streams[0] = {.raw_bytes = static_cast<std::uint32_t>(runs.size()),
                     .body = std::as_bytes(std::span(runs))};
  const ChunkRange range = ChunkRange::Samples(shape, 0, samples_wanted);
  Bytes out(samples_wanted * shape.sample_bytes()), scratch(ChunkScratchBytes(shape));
  const Status status = DecodeChunk(shape, ChunkCodec::kCoded, SerialiseChunk(head), range,
                                    StridedOutput::Dense(shape, range, out), scratch);
  return status.has_value() ? ErrorCode::kUnknown : status.error().code();
}

TEST(StrictStreams, MasksEndWithTheirElementsWhateverIsWantedOfThem) {
  for (const std::uint32_t samples : {1U, 2U}) {
    EXPECT_EQ(DecodeMasked({2, 6}, samples), ErrorCode::kUnknown);
    EXPECT_EQ(DecodeMasked({2, 6, 0}, samples), ErrorCode::kDataLoss) << "a byte behind";
    EXPECT_EQ(DecodeMasked({2, 6, 1}, samples), ErrorCode::kDataLoss) << "a run behind";
    EXPECT_EQ(DecodeMasked({4, 3}, samples), ErrorCode::kDataLoss) << "runs that end early";
    EXPECT_EQ(DecodeMasked({4, 5}, samples), ErrorCode::kDataLoss) << "runs beyond the chunk";
    EXPECT_EQ(DecodeMasked({4, 2, 0, 2}, samples), ErrorCode::kDataLoss) << "an empty run";
  }
}

}  // namespace
}  // namespace forebay::compress
