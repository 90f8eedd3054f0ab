// What a pack is made of, field by field, from the heads of its chunks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compress/decode/byte_source.h"
#include "compress/decode/pack_file.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// An open pack and its bytes. Move-only.
struct OpenedPack {
  std::unique_ptr<compress::ByteSource> source;
  std::unique_ptr<compress::PackFile> file;
};

// Errors name the path. `recover`: without footer and index, as far as records are whole;
// otherwise an incomplete file's error names that remedy.
Result<OpenedPack> OpenPack(const std::string& path, bool recover);

// One chunk as its head has it, which was checked against its checksum and the index.
struct ChunkFacts {
  compress::ChunkEntry entry;
  compress::ChunkCodec codec = compress::ChunkCodec::kStore;
  bool begins_sequence = false;
  std::uint64_t raw_bytes = 0;
};
// kDataLoss for a damaged head.
Result<ChunkFacts> ReadChunkFacts(const OpenedPack& pack, const compress::ChunkEntry& entry);

struct FieldSurvey {
  static constexpr std::size_t kCodecs = 4;
  std::uint64_t chunks = 0, unreadable = 0;
  std::uint64_t raw_bytes = 0;     // of the readable chunks
  std::uint64_t stored_bytes = 0;  // heads and payloads
  std::array<std::uint64_t, kCodecs> raw_of_codec = {};
};

struct PackSurvey {
  std::vector<FieldSurvey> fields;  // in the schema's order
  std::uint64_t file_bytes = 0, raw_bytes = 0;
  double ratio() const {
    return file_bytes == 0 ? 0 : static_cast<double>(raw_bytes) / static_cast<double>(file_bytes);
  }
};

// Reads the head of every chunk; damaged ones are counted. Errors: a system's.
Result<PackSurvey> SurveyPack(const OpenedPack& pack);

const char* CodecName(compress::ChunkCodec codec);  // "store", "zstd", "lz4", "coded"

}  // namespace forebay::cli
