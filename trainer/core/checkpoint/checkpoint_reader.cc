// Opens all shards of a checkpoint and builds one map from tensor names to their places, so that a
// rank can read just the tensors of its stage, whichever rank wrote them. The hashes of the shards
// are not compared here: VerifyCheckpoint has done that once, on rank 0, before the run begins from
// it.
#include "trainer/core/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>

#include <utility>

#include "proto/contract/check.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"

namespace forebay::train {

namespace fs = std::filesystem;

Result<Manifest> ReadManifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  FOREBAY_ASSIGN(const std::string text, ReadText(path, kManifestBytesMax));
  Result<Manifest> manifest = DecodeManifest(text);
  if (!manifest.has_value()) return manifest.error().WithContext(path.string());
  return manifest;
}

// Reads every byte, so that damage is found before the run begins and not at the rank that happens
// to need the tensor.
Status VerifyCheckpoint(const fs::path& folder) {
  FOREBAY_ASSIGN(const Manifest manifest, ReadManifest(folder));
  for (std::size_t at = 0; at < manifest.shards.size(); ++at) {
    FOREBAY_TRY(VerifyShard(folder / ShardName(at), manifest.shards[at]));
  }
  return {};
}

// Headers only: shards may be larger than the memory of a node.
Result<CheckpointReader> CheckpointReader::Open(const fs::path& folder) {
  CheckpointReader reader;
  FOREBAY_ASSIGN(Manifest manifest, ReadManifest(folder));
  reader.folder_ = folder;
  reader.state_ = std::move(manifest.state);
  reader.shards_.reserve(manifest.shards.size());  // entries are pointed at
  for (std::size_t at = 0; at < manifest.shards.size(); ++at) {
    const fs::path path = folder / ShardName(at);
    FOREBAY_ASSIGN(SafetensorsFile shard, SafetensorsFile::Open(path));
    // A file that was replaced since it was verified.
    if (shard.bytes() != manifest.shards[at].bytes) {
      return Error(ErrorCode::kDataLoss,
                   fmt::format("{}: has {} bytes, the manifest says {}", path.string(),
                               shard.bytes(), manifest.shards[at].bytes));
    }
    reader.shards_.push_back(std::move(shard));
    for (const TensorEntry& entry : reader.shards_.back().header().tensors) {
      if (reader.places_.emplace(entry.name, Place{at, &entry}).second) continue;
      return Error(ErrorCode::kDataLoss,
                   fmt::format("{}: tensor {} is in another shard, too", path.string(),
                               entry.name));
    }
  }
  return reader;
}

std::vector<std::string> CheckpointReader::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const TensorEntry* CheckpointReader::Find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.entry;
}

Status CheckpointReader::Read(std::string_view name, std::span<std::byte> bytes) const {
  const auto found = places_.find(name);
  // Callers ask Find first.
  FOREBAY_CHECK(found != places_.end());
  return shards_[found->second.shard].ReadBytes(*found->second.entry, bytes);
}

}  // namespace forebay::train
