// Writes the seeds of tests/fuzz/corpus/chunk, which are checked in: chunk_fuzz_seeds FOLDER.
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/encode/chunk/coded_chunk_encoder.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// The shapes of chunk_fuzz.cc, by its numbers.
ChunkShape ShapeOf(std::uint8_t number) {
  switch (number) {
    case 0: return {.dtype = Dtype::kU8, .samples = 2, .rank = 2, .extent = {64, 64, 1, 1}};
    case 1:
      return {.dtype = Dtype::kU8, .samples = 3, .rank = 3, .extent = {8, 24, 3, 1},
              .channel_axis = 2};
    case 2:
      return {.dtype = Dtype::kU16, .samples = 1, .rank = 3, .extent = {4, 8, 24, 1},
              .channel_axis = 0};
    case 3: return {.dtype = Dtype::kF32, .samples = 2, .rank = 2, .extent = {8, 24, 1, 1}};
    case 4: return {.dtype = Dtype::kF16, .samples = 5, .rank = 1, .extent = {40, 1, 1, 1}};
    case 5: return {.dtype = Dtype::kF64, .samples = 2, .rank = 1, .extent = {30, 1, 1, 1}};
    case 6: return {.dtype = Dtype::kI32, .samples = 2, .rank = 2, .extent = {9, 25, 1, 1}};
    default: return {.dtype = Dtype::kBytes, .samples = 1, .rank = 1, .extent = {16, 1, 1, 1}};
  }
}

void Write(const std::filesystem::path& folder, const std::string& name, std::uint8_t number,
           const EncodedChunk& chunk) {
  std::ofstream file(folder / name, std::ios::binary);
  file.put(static_cast<char>(number));
  file.put(static_cast<char>(chunk.codec));
  file.write(reinterpret_cast<const char*>(chunk.payload.data()),
             static_cast<std::streamsize>(chunk.payload.size()));
}

void WriteSeeds(const std::filesystem::path& folder) {
  SampleMaker maker(1);
  const SampleKind kinds[] = {SampleKind::kSmooth, SampleKind::kFewValues, SampleKind::kHoles,
                              SampleKind::kConstant, SampleKind::kSteps};
  for (std::uint8_t number = 0; number < 8; ++number) {
    ChunkShape shape = ShapeOf(number);
    for (std::size_t k = 0; k < std::size(kinds); ++k) {
      shape.fill_bits = 7;
      const auto raw = maker.Make(shape, kinds[k]);
      ErrorBound bound;
      if (k % 2 == 0) bound = {.mode = BoundMode::kAbsolute, .absolute = 1};
      if (k == 2 && shape.dtype == Dtype::kF32) {
        bound = {.mode = BoundMode::kPointwise, .relative = 0.02};
      }
      const auto coded =
          EncodeCodedChunk(shape, raw, {.profile = Profile::kDense, .bound = bound});
      FOREBAY_CHECK(coded.has_value());
      const std::string name = "shape" + std::to_string(number) + "_kind" + std::to_string(k);
      if (coded->size() <= 4000) {
        Write(folder, name, number, {.codec = ChunkCodec::kCoded, .payload = *coded});
      }
    }
  }
  const auto raw = maker.Make(ShapeOf(0), SampleKind::kFewValues);
  for (const Profile profile : {Profile::kFast, Profile::kBalanced}) {
    // More numbers of the same few values: zstd and LZ4 take them whole.
    std::vector<std::byte> flat(raw.size(), raw[0]);
    flat[5] = raw[1];
    auto chunk = EncodeChunk(ShapeOf(0), flat, {.profile = profile});
    FOREBAY_CHECK(chunk.has_value());
    Write(folder, profile == Profile::kFast ? "fast" : "balanced", 0, *chunk);
  }
  std::vector<std::byte> stored(16, std::byte{3});
  Write(folder, "stored", 7, {.codec = ChunkCodec::kStore, .payload = stored});
}

// Payloads that no encoder writes, at the edges of what a head may say.
void WriteHostileSeeds(const std::filesystem::path& folder) {
  const auto write = [&](const std::string& name, std::uint8_t number, const CodedHead& head) {
    Write(folder, name, number,
          {.codec = ChunkCodec::kCoded, .payload = SerialiseChunk(head)});
  };
  CodedHead colour;
  colour.stages.colour = ColourKind::kGreen;
  write("colour_without_planes", 1, colour);
  CodedHead smallest;
  smallest.stages.quantiser = {.kind = QuantiserKind::kLogarithm, .integer_step = 1, .origin = 1};
  smallest.stages.offset = std::uint64_t{1} << 63;
  write("smallest_number", 5, smallest);
  // Bytes with bits beyond their plane's, some of them within the dictionary: of 16 values it is
  // sound, of 17 it is not.
  for (const std::uint32_t entries : {16U, 17U}) {
    CodedHead looked_up;
    looked_up.stages.dictionary_count = entries;
    looked_up.stages.plane_count = 1;
    looked_up.stages.plane_bits[0] = 4;
    looked_up.stream_count = 2;
    const std::vector<std::byte> dictionary(entries);
    std::vector<std::byte> samples(16, std::byte{0x10});
    samples[3] = std::byte{0xFB};
    looked_up.streams[0] = {.raw_bytes = entries, .body = dictionary};
    looked_up.streams[1] = {.raw_bytes = 16, .body = samples};
    write("dictionary" + std::to_string(entries), 7, looked_up);
  }
}

// Streams that hold more than one frame or the last run, and sound ones beside them.
void WriteLongStreamSeeds(const std::filesystem::path& folder) {
  const auto write = [&](const std::string& name, std::uint8_t number, const CodedHead& head) {
    Write(folder, name, number,
          {.codec = ChunkCodec::kCoded, .payload = SerialiseChunk(head)});
  };
  const ChunkShape shape = ShapeOf(0);
  const std::vector<std::byte> half = CompressZstd(std::vector<std::byte>(shape.bytes() / 2), 3);
  const std::vector<std::byte> whole = CompressZstd(std::vector<std::byte>(shape.bytes()), 3);
  for (const bool is_sound : {true, false}) {
    std::vector<std::byte> body = {kPlaneKindZstd};
    body.insert(body.end(), (is_sound ? whole : half).begin(), (is_sound ? whole : half).end());
    if (!is_sound) body.insert(body.end(), half.begin(), half.end());
    CodedHead plane;
    plane.stages.plane_count = 1;
    plane.stages.plane_bits[0] = 8;
    plane.stream_count = 1;
    plane.streams[0] = {.coder = StreamCoder::kPlanes,
                        .raw_bytes = static_cast<std::uint32_t>(shape.bytes()), .body = body};
    write(is_sound ? "plane_of_one_frame" : "plane_of_two_frames", 0, plane);
    std::vector<std::byte> runs = {std::byte{9}, std::byte{7}};
    if (!is_sound) runs.push_back(std::byte{1});
    CodedHead mask;
    mask.stages.mask_count = 1;
    mask.stream_count = 1;
    mask.streams[0] = {.raw_bytes = static_cast<std::uint32_t>(runs.size()), .body = runs};
    write(is_sound ? "mask_of_two_runs" : "mask_goes_on", 7, mask);
  }
}

}  // namespace
}  // namespace forebay::compress

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: chunk_fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  forebay::compress::WriteSeeds(argv[1]);
  forebay::compress::WriteHostileSeeds(argv[1]);
  forebay::compress::WriteLongStreamSeeds(argv[1]);
  return 0;
}
