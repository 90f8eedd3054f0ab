// Prints what a pack holds, in the words of pack_reader.py: pack_dump FILE
//
// Checksums of chunks are computed from what was decoded, not copied from the file. Predictors that
// a pack names lie beside it.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "compress/decode/pack/pack_set.h"
#include "compress/decode/pack/predictor_file.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"

namespace forebay::compress {
namespace {

std::string Hex(std::string_view text) {
  std::string hex;
  for (const char letter : text) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", static_cast<unsigned char>(letter));
    hex += pair;
  }
  return hex;
}

std::string Join(const std::array<std::uint32_t, kChunkRankMax>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
}

void PrintSchema(const PackFile& pack) {
  const PackSchema& schema = pack.schema();
  const PackHeader& header = pack.header();
  std::printf("pack format=%u.%u id=%s samples=%" PRIu64 " keyed=%d alignment=%d\n", header.major,
              header.minor, header.id.has_value() ? PackIdHex(*header.id).c_str() : "none",
              pack.samples(), schema.keyed ? 1 : 0, schema.aligned ? 4096 : 8);
  for (const PackField& field : schema.fields) {
    std::printf("field %s kind=%d dtype=%d rank=%d extent=%s tile=%s samples_per_chunk=%u\n",
                field.name.c_str(), static_cast<int>(field.kind), static_cast<int>(field.dtype),
                field.rank, Join(field.extent).c_str(), Join(field.tile).c_str(),
                field.samples_per_chunk);
  }
  for (const auto& [key, value] : schema.provenance) {
    std::printf("provenance %s=%s\n", Hex(key).c_str(), Hex(value).c_str());
  }
  for (const auto& predictor : schema.predictors) {
    const bool named = std::ranges::find(schema.named_predictors, predictor->id()) !=
                       schema.named_predictors.end();
    std::printf("predictor %s %s macs=%u\n", named ? "named" : "held",
                Sha256Hex(predictor->id()).c_str(), predictor->macs());
  }
}

Status PrintChunks(const PackFile& pack, std::span<std::byte> scratch) {
  for (const ChunkEntry& entry : pack.index().chunks) {
    FOREBAY_ASSIGN(const PackFile::DecodedChunk chunk, pack.DecodeWhole(entry, scratch));
    std::string checksums;
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < entry.sample_count; ++i) {
      const std::size_t length = pack.schema().fields[entry.field].variable()
                                     ? chunk.head.LengthOf(i)
                                     : chunk.bytes.size() / entry.sample_count;
      char word[32];
      std::snprintf(word, sizeof(word), "%s%016" PRIx64, i > 0 ? "," : "",
                    SampleChecksum(pack.identity(), entry.field, entry.tile,
                                   entry.first_sample + i, entry.part_offset,
                                   chunk.bytes.subspan(at, length)));
      checksums += word;
      at += length;
    }
    std::printf("chunk field=%u tile=%u first=%" PRIu64 " samples=%u part=%" PRIu64
                " of=%" PRIu64 " codec=%d sequence=%d checksums=%s\n",
                entry.field, entry.tile, entry.first_sample, entry.sample_count,
                entry.part_offset, entry.sample_bytes, static_cast<int>(chunk.head.codec),
                chunk.head.begins_sequence ? 1 : 0, checksums.c_str());
  }
  return {};
}

// Of a pack or a set of packs, which have the same calls.
template <typename Packs>
Status PrintSamples(const Packs& packs, const PackSchema& schema, std::uint64_t first,
                    std::uint64_t end, std::span<std::byte> scratch) {
  std::vector<std::byte> value;
  for (std::uint64_t sample = first; sample < end; ++sample) {
    for (std::uint32_t field = 0; field < schema.fields.size(); ++field) {
      FOREBAY_ASSIGN(const std::uint64_t bytes, packs.SampleBytes(field, sample, scratch));
      value.resize(static_cast<std::size_t>(bytes));
      FOREBAY_TRY(schema.fields[field].variable()
                      ? packs.ReadBytes(field, sample, value, scratch)
                      : packs.ReadSamples(field, sample, 1, value, scratch));
      std::printf("sample %" PRIu64 " field=%u hash=%016" PRIx64 "\n", sample, field,
                  Checksum(value));
    }
  }
  return {};
}

// The words of a field.
void PrintStatistics(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  std::printf("statistics ");
  for (bool first = true; reader.remaining() > 0; first = false) {
    std::printf("%s%016" PRIx64, first ? "" : ",", reader.ReadLe<std::uint64_t>());
  }
  std::printf("\n");
}

// All but the samples.
Status PrintPack(const PackFile& pack, std::span<std::byte> scratch) {
  PrintSchema(pack);
  FOREBAY_ASSIGN(const std::vector<std::string> keys, pack.Keys(0, pack.samples()));
  if (pack.has_keys()) {
    for (const std::string& key : keys) std::printf("key %s\n", Hex(key).c_str());
  }
  FOREBAY_TRY(PrintChunks(pack, scratch));
  if (pack.header().major == 1) {
    FOREBAY_ASSIGN(const std::vector<FieldSums> sums, pack.Sums());
    for (const FieldSums& field : sums) PrintStatistics(WriteFieldSums({field}));
    return {};
  }
  FOREBAY_ASSIGN(const std::vector<FieldStatistics> statistics, pack.Statistics());
  for (const FieldStatistics& field : statistics) PrintStatistics(WriteStatistics({field}));
  return {};
}

Status DumpSet(const char* path) {
  FOREBAY_ASSIGN(const std::unique_ptr<PackSet> set, PackSet::Open(path));
  std::printf("set generation=%" PRIu64 " fingerprint=%016" PRIx64 "\n",
              set->manifest().generation, set->manifest().schema_fingerprint);
  for (std::size_t number = 0; number < set->manifest().shards.size(); ++number) {
    const ShardEntry& entry = set->manifest().shards[number];
    const std::uint64_t first = set->FirstSample(number);
    FOREBAY_ASSIGN(const auto shard, set->Shard(number));
    std::printf("shard %s first=%" PRIu64 " bytes=%" PRIu64 " root=%016" PRIx64 "\n",
                entry.name.c_str(), first, entry.file_bytes, entry.root);
    std::vector<std::byte> scratch(shard->file.ScratchBytes());
    FOREBAY_TRY(PrintPack(shard->file, scratch));
    FOREBAY_TRY(PrintSamples(*set, shard->file.schema(), first, first + entry.samples, scratch));
  }
  return {};
}

Status Dump(const char* path) {
  FOREBAY_ASSIGN(const bool is_set, IsManifestFile(path));
  if (is_set) return DumpSet(path);
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(path));
  const PackReadOptions options{.budget = {}, .find_predictor = PredictorsBeside(path)};
  FOREBAY_ASSIGN(const PackFile pack, PackFile::Open(*source, options));
  std::vector<std::byte> scratch(pack.ScratchBytes());
  FOREBAY_TRY(PrintPack(pack, scratch));
  return PrintSamples(pack, pack.schema(), 0, pack.samples(), scratch);
}

}  // namespace
}  // namespace forebay::compress

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: pack_dump FILE\n", stderr);
    return 2;
  }
  const forebay::Status status = forebay::compress::Dump(argv[1]);
  if (!status.has_value()) {
    std::fprintf(stderr, "%s: %s\n", argv[1], status.error().message().c_str());
    return 1;
  }
  return 0;
}
