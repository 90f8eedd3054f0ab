// A pack as a model in memory for tests: makes it from a seed, writes it with PackWriter, and reads
// single samples back. Also writes packs that PackWriter refuses to write.
#include "compress/encode/testing/pack_test_model.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {

TestFolder::TestFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "forebay-pack-XXXXXX").string();
  FOREBAY_CHECK(mkdtemp(name.data()) != nullptr);
  folder_ = name;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

PackModel MakeModel(std::size_t samples, std::uint32_t seed, bool aligned) {
  std::mt19937 random(seed);
  PackModel model;
  model.schema.aligned = aligned;
  model.schema.keyed = true;
  model.schema.provenance = {{"source", "a test"}, {"writer", "pack_test_model"}};
  model.schema.fields = {
      {.name = "image", .kind = FieldKind::kImage, .dtype = Dtype::kU8, .rank = 3,
       .extent = {20, 30, 3, 1}, .channel_axis = 2, .fill_bits = {}, .bound = {},
       .samples_per_chunk = 4, .tile = {16, 17, 3, 1}},
      {.name = "depth", .kind = FieldKind::kImage, .dtype = Dtype::kU16, .rank = 2,
       .extent = {17, 19, 1, 1}, .valid_bits = 12, .fill_bits = 0, .bound = {},
       .samples_per_chunk = 3, .tile = {17, 19, 1, 1}},
      {.name = "label", .kind = FieldKind::kLabel, .dtype = Dtype::kI32, .rank = 0,
       .fill_bits = {}, .bound = {}, .samples_per_chunk = 16},
      {.name = "weather", .kind = FieldKind::kMetadata, .dtype = Dtype::kF32, .rank = 1,
       .extent = {7, 1, 1, 1}, .fill_bits = {}, .bound = {}, .samples_per_chunk = 5,
       .tile = {7, 1, 1, 1}},
      {.name = "text", .kind = FieldKind::kRaw, .dtype = Dtype::kBytes, .rank = 0,
       .fill_bits = {}, .bound = {}, .samples_per_chunk = 6}};
  for (std::size_t s = 0; s < samples; ++s) {
    auto& fields = model.samples.emplace_back();
    for (const PackField& field : model.schema.fields) {
      const std::size_t bytes = field.variable() ? random() % 40 * (random() % 3)
                                                 : static_cast<std::size_t>(field.sample_bytes());
      auto& value = fields.emplace_back(bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        value[i] = static_cast<std::byte>((i / 3 + s + random() % 4) & 0xFF);
      }
      if (field.name == "depth") {
        for (std::size_t i = 1; i < bytes; i += 2) value[i] &= std::byte{0x0F};
      }
    }
    model.keys.push_back("sample/" + std::to_string(s * 7));
  }
  if (samples > 8) model.sequences = {5, 6};
  return model;
}

Status AddAll(const PackModel& model, PackWriter& writer, std::size_t end) {
  while (writer.next_sample() < end) {
    const auto s = static_cast<std::size_t>(writer.next_sample());
    for (std::size_t begin : model.sequences) {
      if (begin == s) FOREBAY_TRY(writer.BeginSequence());
    }
    const std::vector<std::span<const std::byte>> fields(model.samples[s].begin(),
                                                         model.samples[s].end());
    FOREBAY_TRY(writer.Add(fields, model.keys.empty() ? "" : model.keys[s]));
  }
  return {};
}

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  FOREBAY_CHECK(file.good());
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  FOREBAY_CHECK(file.good());
}

std::vector<std::byte> WritePack(const PackModel& model, const TestFolder& folder,
                                 const PackWriterOptions& options) {
  const std::string path = folder.Path("written.fbp");
  PackWriterOptions with_id = options;
  if (!with_id.id.has_value()) with_id.id = kTestPackId;
  auto writer = PackWriter::Create(path, model.schema, with_id);
  FOREBAY_CHECK(writer.has_value());
  FOREBAY_CHECK(AddAll(model, **writer, model.samples.size()).has_value());
  FOREBAY_CHECK((*writer)->Finish().has_value());
  std::vector<std::byte> bytes = ReadFile(path);
  std::filesystem::remove(path);
  return bytes;
}

std::vector<std::byte> OverlappingHeads(std::uint32_t chunks) {
  PackSchema schema;
  for (const char* name : {"single", "double"}) {
    schema.fields.push_back({.name = name, .dtype = Dtype::kU8, .fill_bits = {}, .bound = {},
                             .samples_per_chunk = 2});
  }
  ByteWriter bytes;
  bytes.Bytes(WritePackStart(schema, kTestPackId));
  const std::uint64_t identity = PackIdentity(bytes.bytes());
  const std::array<std::byte, 2 * sizeof(std::uint64_t)> zeros{};
  const auto add = [&](std::uint32_t field, std::uint64_t first, std::uint32_t count) {
    const std::span payload = std::span(zeros).first(count);
    const ChunkHead head{.field = field, .first_sample = first, .sample_count = count,
                         .raw_bytes = count,
                         .checksums = std::span(zeros).first(count * sizeof(std::uint64_t))};
    bytes.Bytes(WriteRecordHead(identity, bytes.size(), RecordType::kChunk, WriteChunkHead(head),
                                payload, false));
    bytes.Bytes(payload);
    bytes.AlignTo(8);
  };
  for (std::uint32_t first = 0; first < chunks; ++first) add(0, first, 1);
  for (std::uint32_t first = 0; first < chunks; ++first) add(1, first, 2);
  return bytes.Release();
}

namespace {

RecordPrefix AppendRecord(std::uint64_t identity, RecordType type, std::span<const std::byte> added,
                          std::span<const std::byte> payload, std::vector<std::byte>& bytes) {
  const auto head = WriteRecordHead(identity, bytes.size(), type, added, payload, false);
  bytes.insert(bytes.end(), head.begin(), head.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return *ReadRecordPrefix(head);
}

}  // namespace

std::vector<std::byte> PackOfNarrowFrames() {
  PackSchema schema;
  schema.fields = {{.name = "thread", .dtype = Dtype::kU8, .rank = 2,
                    .extent = {87'381, 24, 1, 1}, .fill_bits = {}, .bound = {},
                    .samples_per_chunk = 2, .tile = {87'381, 24, 1, 1}}};
  const std::size_t sample_bytes = schema.fields[0].sample_bytes();
  std::vector<std::byte> bytes = WritePackStart(schema, kTestPackId);
  const std::uint64_t identity = PackIdentity(bytes);
  std::vector<std::byte> samples(2 * sample_bytes);
  ByteWriter checksums;
  for (std::size_t s = 0; s < 2; ++s) {
    const auto sample = std::span(samples).subspan(s * sample_bytes, sample_bytes);
    for (std::size_t i = 0; i < sample_bytes; ++i) sample[i] = static_cast<std::byte>(i * 7 + s);
    checksums.Le(SampleChecksum(identity, 0, 0, s, 0, sample));
  }
  const ChunkHead head{.sample_count = 2,
                       .begins_sequence = true,
                       .raw_bytes = samples.size(),
                       .checksums = checksums.bytes()};
  ChunkEntry entry{.sample_count = 2, .offset = bytes.size(), .payload_bytes = samples.size()};
  const RecordPrefix chunk =
      AppendRecord(identity, RecordType::kChunk, WriteChunkHead(head), samples, bytes);
  entry.head_bytes = chunk.head_bytes;
  entry.head_checksum = chunk.head_checksum;
  PackFooter footer{.samples = 2};
  footer.index_offset = bytes.size();
  PackIndex index{.samples = 2, .chunks = {entry}, .keys = {}};
  AppendRecord(identity, RecordType::kIndex, {}, WritePackIndex(index), bytes);
  footer.index_bytes = bytes.size() - footer.index_offset;
  const auto end = WritePackFooter(identity, footer);
  bytes.insert(bytes.end(), end.begin(), end.end());
  return bytes;
}

Result<std::vector<std::byte>> ReadField(const PackFile& pack, std::uint32_t field,
                                         std::uint64_t sample, std::span<std::byte> scratch) {
  FOREBAY_ASSIGN(const std::uint64_t bytes, pack.SampleBytes(field, sample, scratch));
  std::vector<std::byte> value(static_cast<std::size_t>(bytes));
  if (pack.schema().fields[field].variable()) {
    FOREBAY_TRY(pack.ReadBytes(field, sample, value, scratch));
  } else {
    FOREBAY_TRY(pack.ReadSamples(field, sample, 1, value, scratch));
  }
  return value;
}

}  // namespace forebay::compress
