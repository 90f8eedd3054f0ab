// What a pack is made of, field by field, from the heads of its chunks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_file.h"
#include "compress/decode/pack/pack_set.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// An open pack and its bytes.
struct OpenedPack {
  std::shared_ptr<const compress::ByteSource> source;
  std::shared_ptr<const compress::PackFile> file;
};

// Errors name the path. `recover`: without footer and index, as far as records are whole;
// otherwise an incomplete file's error names that remedy.
Result<OpenedPack> OpenPack(const std::string& path, bool recover);

// A pack, or the shards of a set of packs one after the other.
class OpenedPacks {
 public:
  // A set where the file is a manifest; of it the manifest alone is read. As OpenPack.
  static Result<OpenedPacks> Open(const std::string& path, bool recover);

  bool is_set() const { return set_ != nullptr; }
  const compress::PackSet& set() const { return *set_; }  // of a set only
  std::size_t count() const { return is_set() ? set_->manifest().shards.size() : 1; }
  std::uint64_t samples() const { return is_set() ? set_->samples() : single_.file->samples(); }
  std::uint64_t FirstSample(std::size_t number) const {
    return is_set() ? set_->FirstSample(number) : 0;
  }
  // A pack's path: the one that was given, or a shard's.
  std::string Path(std::size_t number) const;
  // Errors name the path.
  Result<OpenedPack> Pack(std::size_t number) const;

 private:
  std::string path_;
  OpenedPack single_;
  std::unique_ptr<compress::PackSet> set_;
};

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

// Adds another pack's, of the same fields.
void AddSurvey(const PackSurvey& more, PackSurvey& sum);

// Reads the head of every chunk; damaged ones are counted. Errors: a system's.
Result<PackSurvey> SurveyPack(const OpenedPack& pack);

const char* CodecName(compress::ChunkCodec codec);  // "store", "zstd", "lz4", "coded"

}  // namespace forebay::cli
