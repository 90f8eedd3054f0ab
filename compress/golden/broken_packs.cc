// The packs that are refused. Each has one fault; what else it says of itself is right.
#include <algorithm>
#include <functional>
#include <utility>

#include <zstd.h>

#include "compress/format/chunk/chunk_header.h"
#include "compress/format/plane/plane_shape.h"
#include "compress/golden/golden_packs.h"
#include "compress/golden/pack_editor.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

using Bytes = std::vector<std::byte>;

// Where a chunk's record says what, in what its type adds (docs/pack.md).
constexpr std::size_t kAtFirstSample = 8, kAtCodec = 20, kAtFlags = 21, kAtRawBytes = 24;
constexpr std::size_t kAtChecksums = 48;

// Little-endian, as the format stores words, whatever the machine's order is.
void PutWord(Bytes& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
  }
}

// `change` made to a sound pack's bytes, and nothing put right.
Bytes Changed(Bytes bytes, const std::function<void(Bytes&)>& change) {
  change(bytes);
  return bytes;
}

// A byte of the header changed and the header's checksum put right.
Bytes WithHeader(Bytes bytes, std::size_t at, std::byte value) {
  bytes[at] = value;
  PutWord(bytes, kPackHeaderBytes - 8, Checksum(std::span(bytes).first(kPackHeaderBytes - 8)));
  return bytes;
}

// Changed between being taken apart and put together: all checksums are right.
Bytes Edited(const Bytes& bytes, const std::function<void(PackEditor&)>& change) {
  PackEditor editor(bytes);
  change(editor);
  return editor.Bytes();
}

// A zstd frame of `bytes` zeros, with its size and a checksum.
Bytes ZstdZeros(std::size_t bytes) {
  const Bytes zeros(bytes);
  Bytes frame(ZSTD_compressBound(bytes));
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  // Within the window that readers allow, so that they refuse the frame for its size alone.
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 20);
  const std::size_t size =
      ZSTD_compress2(context, frame.data(), frame.size(), zeros.data(), zeros.size());
  ZSTD_freeCCtx(context);
  FOREBAY_CHECK(ZSTD_isError(size) == 0);
  frame.resize(size);
  return frame;
}

// Where chunk `chunk` of the index has its record, or its payload.
std::size_t Offset(const Bytes& bytes, std::size_t chunk, bool payload) {
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  FOREBAY_CHECK(pack.has_value());
  const ChunkEntry& entry = pack->index().chunks[chunk];
  return static_cast<std::size_t>(entry.offset + (payload ? entry.head_bytes : 0));
}

// A fault behind a checksum needs that checksum put right, or a reader would stop there and the
// test would never reach the check it is meant for.
void AddBrokenStarts(const Bytes& good, std::vector<BadPack>& bad) {
  bad.push_back({"newer_version", WithHeader(good, 8, std::byte{3}), ErrorCode::kUnimplemented,
                 "written by format 3.0"});
  // Bit 0 of the features means nothing to this reader.
  bad.push_back({"unknown_feature", WithHeader(good, 16, std::byte{1}),
                 ErrorCode::kUnimplemented, "features that this reader"});
  bad.push_back({"odd_alignment", WithHeader(good, 12, std::byte{16}), ErrorCode::kDataLoss,
                 "the alignment is neither 8 nor 4096"});
  // The seventh byte of the schema's size: more than any memory has.
  bad.push_back({"huge_schema", WithHeader(good, 30, std::byte{0xFF}), ErrorCode::kDataLoss,
                 "the schema has more than"});
  bad.push_back({"wrong_magic", Changed(good, [](Bytes& b) { b[7] = std::byte{'2'}; }),
                 ErrorCode::kInvalidArgument, "not a pack file"});
  bad.push_back({"header_checksum", Changed(good, [](Bytes& b) { b[10] ^= std::byte{1}; }),
                 ErrorCode::kDataLoss, "the header does not match its checksum"});
  bad.push_back({"schema_checksum",
                 Changed(good, [](Bytes& b) { b[kPackHeaderBytes + 2] ^= std::byte{1}; }),
                 ErrorCode::kDataLoss, "the schema does not match its checksum"});
  // 80 bytes are the header and 16 bytes of the schema.
  bad.push_back({"cut_in_schema", Changed(good, [](Bytes& b) { b.resize(80); }),
                 ErrorCode::kDataLoss, "ends within its schema"});
  bad.push_back({"torn_footer", Changed(good, [](Bytes& b) { b.erase(b.end() - 10, b.end()); }),
                 ErrorCode::kDataLoss, "there is no valid footer"});
}

void AddBrokenIndexes(const Bytes& good, std::vector<BadPack>& bad) {
  bad.push_back({"index_beside",
                 Changed(good,
                         [](Bytes& b) {
                           // The footer's checksum is put right, so that only the offset of the
                           // index is wrong.
                           const std::size_t footer = b.size() - kFooterBytes;
                           b[footer + 8] ^= std::byte{8};
                           PutWord(b, footer + 48, Checksum(std::span(b).subspan(footer, 48)));
                         }),
                 ErrorCode::kDataLoss, "the footer does not point to the index"});
  bad.push_back({"footer_disagrees", Edited(good, [](PackEditor& e) { e.set_footer_samples(6); }),
                 ErrorCode::kDataLoss, "the footer and the index disagree"});
  // From here on the index is changed and written again, with correct checksums.
  bad.push_back({"overlapping_chunks",
                 Edited(good, [](PackEditor& e) { e.index().chunks[1].first_sample = 2; }),
                 ErrorCode::kDataLoss, "do not follow one another, at sample 2"});
  bad.push_back({"missing_chunk", Edited(good, [](PackEditor& e) { e.index().chunks.pop_back(); }),
                 ErrorCode::kDataLoss, "chunks of field text do not cover all samples"});
  bad.push_back({"keys_missing", Edited(good,
                                        [](PackEditor& e) {
                                          --e.index().keys[0].sample_count;
                                        }),
                 ErrorCode::kDataLoss, "keys do not cover all samples"});
  bad.push_back({"chunk_outside",
                 Edited(good, [](PackEditor& e) { e.set_misplaced_by(1ULL << 40); }),
                 ErrorCode::kDataLoss, "lies outside the file"});
  bad.push_back({"chunk_misplaced", Edited(good, [](PackEditor& e) { e.set_misplaced_by(8); }),
                 ErrorCode::kDataLoss, "chunk of field label, samples 0 to 2"});
}

// Two chunks of one field, of one length, in each other's place.
Bytes Swapped(Bytes bytes) {
  const std::size_t a = Offset(bytes, 0, false), b = Offset(bytes, 1, false);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  const auto length = static_cast<std::size_t>(pack->index().chunks[0].head_bytes +
                                               pack->index().chunks[0].payload_bytes);
  // Records of different lengths would be noticed by their size and not by their identity.
  FOREBAY_CHECK(pack->index().chunks[1].head_bytes == pack->index().chunks[0].head_bytes &&
                pack->index().chunks[1].payload_bytes == pack->index().chunks[0].payload_bytes);
  std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(a),
                   bytes.begin() + static_cast<std::ptrdiff_t>(a + length),
                   bytes.begin() + static_cast<std::ptrdiff_t>(b));
  return bytes;
}

void AddBrokenChunks(const Bytes& good, std::vector<BadPack>& bad) {
  const auto edit = [&](std::string name, ErrorCode code, std::string message,
                        const std::function<void(PackEditor&)>& change) {
    bad.push_back({std::move(name), Edited(good, change), code, std::move(message)});
  };
  bad.push_back({"damaged_payload", Changed(good,
                                            [&](Bytes& b) {
                                              b[Offset(good, 0, true)] ^= std::byte{0x10};
                                            }),
                 ErrorCode::kDataLoss, "its payload does not match its checksum"});
  edit("sample_checksum", ErrorCode::kDataLoss,
       "sample 0 of field label does not match its checksum",
       [](PackEditor& e) { e.Patch(0, kAtChecksums, 8, 12345); });
  edit("raw_too_large", ErrorCode::kDataLoss, "a chunk of field text has an impossible size",
       [](PackEditor& e) { e.Patch(2, kAtRawBytes, 8, limits::kChunkBytesMax + 1); });
  edit("lengths_disagree", ErrorCode::kDataLoss, "has lengths that do not add up",
       [](PackEditor& e) { e.Patch(2, kAtRawBytes, 8, 3); });
  edit("unknown_codec", ErrorCode::kUnimplemented, "unknown codec 9",
       [](PackEditor& e) { e.Patch(0, kAtCodec, 1, 9); });
  edit("unknown_flags", ErrorCode::kUnimplemented, "or flags; use a newer reader",
       [](PackEditor& e) { e.Patch(0, kAtFlags, 1, 2); });
  // Head and index are both sound and contradict each other: no checksum finds that.
  edit("other_samples", ErrorCode::kDataLoss, "it holds other samples than the index says",
       [](PackEditor& e) { e.Patch(0, kAtFirstSample, 8, 1); });
  edit("stored_short", ErrorCode::kDataLoss, "stored chunk: 23 bytes, 24 expected",
       [](PackEditor& e) {
         e.Patch(0, kAtCodec, 1, 0);
         e.Chunk(0).payload.assign(23, std::byte{1});
       });
  edit("zstd_bomb", ErrorCode::kDataLoss, "the zstd frame has the wrong size", [](PackEditor& e) {
    e.Patch(0, kAtCodec, 1, 1);
    // A few bytes that would become 32 MiB: the reader must compare the frame's size first.
    e.Chunk(0).payload = ZstdZeros(std::size_t{32} << 20);
  });
  edit("endless_key", ErrorCode::kDataLoss, "a key record has the wrong length", [](PackEditor& e) {
    for (PackEditor::Record& record : e.records()) {
      // The first key says that it has 127 bytes, more than follow.
      if (record.type == RecordType::kKeys) record.payload[0] = std::byte{0x7F};
    }
  });
}

// Coded payloads that name what they have no bits for: half of a range of no bits, values that no
// code reaches.
void AddBrokenPayloads(const Bytes& good, std::vector<BadPack>& bad) {
  const auto edit = [&](std::string name, std::string message,
                        std::initializer_list<std::uint8_t> payload) {
    bad.push_back({std::move(name), Edited(good,
                                           [&](PackEditor& e) {
                                             e.Patch(0, kAtCodec, 1, 3);
                                             Bytes& bytes = e.Chunk(0).payload;
                                             bytes.clear();
                                             for (const std::uint8_t byte : payload) {
                                               bytes.push_back(std::byte{byte});
                                             }
                                           }),
                   ErrorCode::kDataLoss, std::move(message)});
  };
  // Layout 1, one stage: colour (6), kind 1; no planes.
  edit("colour_without_planes", "there are colours without planes", {1, 1, 6, 1, 0});
  // Layout 1, one stage: dictionary (5) of two values; no planes, so only code 0; then a stored
  // stream.
  edit("dictionary_beyond_codes", "the dictionary has more values than codes can name",
       {1, 1, 5, 2, 0, 0, 2, 2, 0, 0});
}

// Streams of the right size that hold more than their one frame or their last run: of `pictures`, a
// chunk of u8 whose elements are one plane.
void AddLongStreams(const Bytes& pictures, std::vector<BadPack>& bad) {
  const auto edit = [&](std::string name, std::string message,
                        const std::function<void(std::size_t, CodedHead&)>& fill) {
    bad.push_back({std::move(name), Edited(pictures,
                                           [&](PackEditor& e) {
                                             // The sizes in the chunk's record stay as they are.
                                             // Only the payload is replaced.
                                             PackEditor::Record& chunk = e.Chunk(0);
                                             const auto bytes = static_cast<std::size_t>(
                                                 ByteReader(std::span(chunk.added)
                                                                .subspan(kAtRawBytes))
                                                     .ReadLe<std::uint64_t>());
                                             CodedHead head;
                                             head.stream_count = 1;
                                             fill(bytes, head);
                                             e.Patch(0, kAtCodec, 1, 3);
                                             chunk.payload = SerialiseChunk(head);
                                           }),
                   ErrorCode::kDataLoss, std::move(message)});
  };
  Bytes body;
  edit("plane_of_two_frames", "the zstd frame has the wrong size",
       [&](std::size_t bytes, CodedHead& head) {
         // Two frames of half the size each: their sum is right, so only a reader that asks for
         // exactly one frame refuses them.
         const Bytes half = ZstdZeros(bytes / 2);
         body = {kPlaneKindZstd};
         for (int i = 0; i < 2; ++i) body.insert(body.end(), half.begin(), half.end());
         head.stages.plane_count = 1;
         head.stages.plane_bits[0] = 8;
         head.streams[0] = {.coder = StreamCoder::kPlanes,
                            .raw_bytes = static_cast<std::uint32_t>(bytes), .body = body};
       });
  edit("mask_goes_on", "mask: there are bytes behind the last run",
       [&](std::size_t bytes, CodedHead& head) {
         ByteWriter runs;
         // One run over all elements, and one byte more.
         runs.Varint(bytes);
         runs.Varint(1);
         body = runs.Release();
         head.stages.mask_count = 1;
         head.streams[0] = {.raw_bytes = static_cast<std::uint32_t>(body.size()), .body = body};
       });
}

// The file with another offset and size of its statistics in the footer.
Bytes PointedElsewhere(Bytes bytes, std::uint64_t offset, std::uint64_t size) {
  const std::size_t footer = bytes.size() - kFooterBytes;
  // Offsets within the footer are those of docs/pack.md.
  PutWord(bytes, footer + 32, offset);
  PutWord(bytes, footer + 40, size);
  PutWord(bytes, footer + 48, Checksum(std::span(bytes).subspan(footer, 48)));
  return bytes;
}

void AddBrokenStatistics(const Bytes& good, std::vector<BadPack>& bad) {
  const std::size_t footer = good.size() - kFooterBytes;
  const std::uint64_t at = ByteReader(std::span(good).subspan(footer + 32)).ReadLe<std::uint64_t>();
  bad.push_back({"statistics_damaged",
                 Changed(good, [&](Bytes& b) { b[at + 50] ^= std::byte{2}; }),
                 ErrorCode::kDataLoss, "statistics: pack: the record at byte"});
  bad.push_back({"statistics_beside", PointedElsewhere(good, at + 8, 512), ErrorCode::kDataLoss,
                 "statistics: pack: there is no record at this offset"});
  // Offset plus size wraps around: a reader that adds before it compares would accept it.
  bad.push_back({"statistics_outside", PointedElsewhere(good, ~std::uint64_t{0} - 7, 512),
                 ErrorCode::kDataLoss, "statistics"});
  bad.push_back({"statistics_of_chunk", PointedElsewhere(good, Offset(good, 0, false), 512),
                 ErrorCode::kDataLoss, " has the wrong type or size"});
}

}  // namespace

std::vector<BadPack> MakeBadPacks() {
  const std::vector<GoodPack> good = MakeGoodPacks();
  const auto named = [&](const char* name) -> const Bytes& {
    // Faults are put into golden packs, so that what is refused differs from what is accepted in
    // one thing only.
    const auto found = std::ranges::find(good, name, &GoodPack::name);
    FOREBAY_CHECK(found != good.end());
    return found->bytes;
  };
  std::vector<BadPack> bad;
  // Each group of faults takes the smallest pack that has what it breaks.
  AddBrokenStarts(named("keys_v2"), bad);
  AddBrokenIndexes(named("keys_v2"), bad);
  AddBrokenChunks(named("keys_v2"), bad);
  AddBrokenPayloads(named("tiles_v2"), bad);
  AddLongStreams(named("dense_v2"), bad);
  AddBrokenStatistics(named("statistics_v2"), bad);
  bad.push_back({"swapped_chunks", Swapped(named("swappable_v2")), ErrorCode::kDataLoss,
                 "its record is not the one that the index names"});
  for (BadPack& pack : bad) pack.name += "_v2";
  return bad;
}

}  // namespace forebay::compress
