// The manifest of a set of packs (docs/pack.md): a list of shards, which together are one sequence
// of samples; its parser and writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::compress {

inline constexpr std::uint64_t kManifestMagic = 0x3154'4553'5942'4546;  // "FEBYSET1"
inline constexpr std::uint16_t kManifestMajor = 1, kManifestMinor = 0;
inline constexpr std::size_t kManifestHeaderBytes = 64;

// A pack file of a set.
struct ShardEntry {
  std::string name;              // relative to the manifest's folder, '/' between its parts
  std::uint64_t file_bytes = 0;
  std::uint64_t samples = 0;
  std::uint64_t root = 0;        // PackFile::root(): of other samples it is another one
};

struct PackManifest {
  std::uint64_t generation = 1;          // one more with every append
  std::uint64_t schema_fingerprint = 0;  // PackFile::schema_fingerprint() of every shard
  std::vector<ShardEntry> shards;
};

// Whether a shard's name stays beneath the manifest's folder: it is relative, and none of its parts
// is empty, "." or "..".
bool IsShardName(std::string_view name);

// Checks a manifest. Errors: kInvalidArgument for no or too many shards, for names that repeat or
// are not beneath the folder, and for more samples than a set may have.
Status CheckManifest(const PackManifest& manifest);

std::vector<std::byte> WritePackManifest(const PackManifest& manifest);

// Whether a file that begins with these bytes is a manifest, of whatever version.
bool IsManifest(std::span<const std::byte> begin);

// The size of the whole file, read from its first kManifestHeaderBytes. Errors: kInvalidArgument
// (not a manifest), kUnimplemented (a newer version or feature), kDataLoss.
Result<std::uint64_t> PackManifestBytes(std::span<const std::byte> header);

// Parses and checks the bytes of a whole manifest file. Errors: those of PackManifestBytes.
Result<PackManifest> ReadPackManifest(std::span<const std::byte> bytes);

}  // namespace forebay::compress
