// Writes seeds of tests/fuzz/corpus/pack_format, bit_packed_decoder, wavefront_decoder and
// learned_decoder, which are checked in: pack_fuzz_seeds FOLDER
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "compress/encode/block/bit_packed_encoder.h"
#include "compress/encode/testing/learned_samples.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/encode/wavefront/wavefront_encoder.h"
#include "compress/golden/golden_packs.h"
#include "compress/golden/pack_editor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

using Bytes = std::vector<std::byte>;

// Fuzz targets take their parameters from the first bytes of an input and the coded data from the
// others.
Bytes Prefixed(std::initializer_list<unsigned> first, std::span<const std::byte> rest) {
  Bytes bytes;
  for (const unsigned byte : first) bytes.push_back(static_cast<std::byte>(byte));
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

// Samples that rise along rows and move from frame to frame.
Bytes Samples(const PlaneShape& shape) {
  Bytes bytes;
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    for (std::uint32_t y = 0; y < shape.rows; ++y) {
      for (std::uint32_t x = 0; x < shape.columns; ++x) {
        // Whole numbers only, so that the seeds are the same wherever they are made.
        const std::uint32_t value =
            ((x + t) * 3 + y * 2 + (x * y) % 5) & ((1U << shape.bits) - 1);
        bytes.push_back(static_cast<std::byte>(value & 0xFF));
        if (shape.sample_bytes() == 2) bytes.push_back(static_cast<std::byte>(value >> 8));
      }
    }
  }
  return bytes;
}

void WritePlaneSeeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder / "wavefront_decoder");
  std::filesystem::create_directories(folder / "bit_packed_decoder");
  // Both ends of each sample size: 1 and 8 bits in a byte, 12 and 16 in two.
  for (const unsigned bits : {1U, 8U, 12U, 16U}) {
    const std::string name = "bits" + std::to_string(bits);
    // The four leading bytes below say the same shape, less the smallest value of each parameter.
    PlaneShape shape{.frames = 3, .rows = 8 + 6, .columns = 24 + 9,
                     .bits = static_cast<std::uint8_t>(bits)};
    WriteFile(
        folder / "wavefront_decoder" / name,
        Prefixed({2, 6, 9, bits - 1}, EncodeWavefront(shape, Samples(shape), WavefrontEffort{})));
    shape.rows = 7;
    shape.columns = 34;
    WriteFile(folder / "bit_packed_decoder" / name,
              Prefixed({2, 6, 33, bits - 1}, EncodeBitPacked(shape, Samples(shape))));
  }
}

// Networks for both kinds of frames, for one of them, and of the most extreme numbers; rows beyond
// the 64 of a band in one seed.
void WriteLearnedSeeds(const std::filesystem::path& folder) {
  // The fuzz target takes the predictor from the input and decodes what lies behind the plane's
  // kind and the predictor's short id.
  constexpr std::size_t kKindAndIdBytes = 9;
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, std::array<unsigned, 4> shape_bytes,
                         const Predictor& predictor) {
    const PlaneShape shape{.frames = 1 + shape_bytes[0],
                           .rows = 8 + shape_bytes[1],
                           .columns = 24 + shape_bytes[2],
                           .bits = static_cast<std::uint8_t>(1 + shape_bytes[3])};
    const Bytes body = EncodeEveryBlockLearned(shape, Samples(shape), predictor);
    Bytes rest(predictor.bytes().begin(), predictor.bytes().end());
    // The record says its own length, so the target knows where the body begins.
    rest.insert(rest.end(), body.begin() + kKindAndIdBytes, body.end());
    WriteFile(folder / name, Prefixed({shape_bytes[0], shape_bytes[1], shape_bytes[2],
                                       shape_bytes[3]}, rest));
  };
  // The numbers of a network are its inputs and the outputs of each layer.
  write("both", {2, 6, 9, 7}, *RandomPredictor(1, {21, 5, 2}, {35, 6, 4, 2}));
  write("intra", {1, 58, 2, 7}, *RandomPredictor(2, {21, 3, 2}, {}));
  write("inter", {2, 10, 12, 4}, *RandomPredictor(3, {}, {35, 3, 2}));
  write("extreme", {1, 4, 8, 7}, *ExtremePredictor(4, {35, 8, 2}));
}

// The parsers by the numbers of pack_format_fuzz.cc.
void WriteFormatSeeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  // The target adds the header by itself, so that its checksums are right.
  for (const GoodPack& pack : MakeGoodPacks()) {
    const auto start = PackStartBytes(pack.bytes);
    FOREBAY_CHECK(start.has_value());
    const auto body = std::span(pack.bytes).subspan(
        kPackHeaderBytes, static_cast<std::size_t>(*start) - kPackHeaderBytes);
    WriteFile(folder / ("schema_" + pack.name), Prefixed({0}, body));
  }
  Bytes checksums(16), lengths(8);
  const ChunkHead image{.field = 0, .tile = 1, .first_sample = 3, .sample_count = 2,
                        .raw_bytes = 56, .checksums = checksums};
  WriteFile(folder / "chunk_image", Prefixed({1}, WriteChunkHead(image)));
  lengths[0] = std::byte{5};
  const ChunkHead text{.field = 1, .first_sample = 3, .sample_count = 2, .raw_bytes = 5,
                       .checksums = checksums, .lengths = lengths};
  WriteFile(folder / "chunk_text", Prefixed({1}, WriteChunkHead(text)));
  PackIndex index{.samples = 2, .chunks = {}, .keys = {}};
  for (std::uint32_t tile = 0; tile < 2; ++tile) {
    index.chunks.push_back({.tile = tile, .sample_count = 2, .head_bytes = 104, .offset = 400});
  }
  index.chunks.push_back({.field = 1, .sample_count = 1, .head_bytes = 104, .offset = 400});
  // One sample in two parts, so that the fuzzer starts from an index that has parts.
  for (const std::uint64_t at : {0U, 1U << 22}) {
    index.chunks.push_back({.field = 1, .first_sample = 1, .sample_count = 1, .head_bytes = 104,
                            .offset = 800, .part_offset = at, .sample_bytes = 5'000'000});
  }
  index.keys.push_back({.sample_count = 2, .head_bytes = 56, .offset = 900, .payload_bytes = 8});
  WriteFile(folder / "index", Prefixed({2}, WritePackIndex(index)));
  WriteFile(folder / "record", Prefixed({3}, WriteRecordHead(1, 2, RecordType::kKeys, lengths,
                                                             checksums, false)));
  WriteFile(folder / "footer",
            Prefixed({4}, WritePackFooter(1, {.index_offset = 64, .index_bytes = 64})));
}

}  // namespace
}  // namespace forebay::compress

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: pack_fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  forebay::compress::WritePlaneSeeds(folder);
  forebay::compress::WriteLearnedSeeds(folder / "learned_decoder");
  forebay::compress::WriteFormatSeeds(folder / "pack_format");
  return 0;
}
