// Parses, checks and writes the manifest of a set (docs/pack.md, "Sets of packs"). There are two
// checksums: one over the header, which says how long the list of shards is, and one over the list.
// Names of shards are checked so that none leads out of the manifest's folder. PackSet, the writer
// of sets and the daemon's catalogue call this with bytes from files that nobody has checked
// before.
#include "compress/format/pack/pack_manifest.h"

#include <set>
#include <string_view>
#include <utility>

#include "compress/format/damaged.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kManifestPart = "manifest";  // in errors

Error InvalidManifest(std::string what) {
  return Error(ErrorCode::kInvalidArgument, "manifest: " + std::move(what));
}

// Called for one entry at a time, because each entry is preceded by its length. New members may
// only be added at the end (ReadPackManifest).
void WriteShard(const ShardEntry& shard, ByteWriter& writer) {
  writer.String(shard.name);
  writer.Le(shard.file_bytes);
  writer.Le(shard.samples);
  writer.Le(shard.root);
}

}  // namespace

// A name is a relative path whose parts are ordinary names. "..", an empty part (so also a leading
// slash) and NUL are refused, so that a manifest from elsewhere cannot name files outside its
// folder.
bool IsShardName(std::string_view name) {
  if (name.empty() || name.size() > limits::kPathBytesMax ||
      name.find('\0') != std::string_view::npos) {
    return false;
  }
  for (;;) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

// The writer calls this as well, so that it writes no manifest that a reader would refuse. The
// total of samples is compared before it is added, because a sum of two u64 from a file can
// overflow.
Status CheckManifest(const PackManifest& manifest) {
  if (manifest.shards.empty() || manifest.shards.size() > limits::kPackShardsMax) {
    return InvalidManifest("a set has 1 to " + std::to_string(limits::kPackShardsMax) + " shards");
  }
  if (manifest.generation == 0) return InvalidManifest("generations count from 1");
  std::set<std::string_view> names;
  std::uint64_t samples = 0;
  for (const ShardEntry& shard : manifest.shards) {
    if (!IsShardName(shard.name)) {
      return InvalidManifest("'" + shard.name.substr(0, 200) + "' is no name beneath its folder");
    }
    if (!names.insert(shard.name).second) return InvalidManifest("shard " + shard.name + " twice");
    if (shard.samples > limits::kSampleCountMax - samples) {
      return InvalidManifest("more than " + std::to_string(limits::kSampleCountMax) + " samples");
    }
    samples += shard.samples;
  }
  return {};
}

// The list is made first, because the header has its length and its checksum. The header's own
// checksum comes last and covers the list's, so the list of another generation behind this header
// is noticed.
std::vector<std::byte> WritePackManifest(const PackManifest& manifest) {
  ByteWriter list;
  list.Varint(manifest.shards.size());
  for (const ShardEntry& shard : manifest.shards) {
    ByteWriter entry;
    WriteShard(shard, entry);
    list.Varint(entry.size());
    list.Bytes(entry.bytes());
  }
  ByteWriter writer;
  writer.Le(kManifestMagic);
  writer.Le(kManifestMajor);
  writer.Le(kManifestMinor);
  writer.Le(std::uint32_t{0});  // keeps the next words at multiples of 8; not read
  writer.Le(std::uint64_t{0});  // features that a reader must understand
  writer.Le(manifest.generation);
  writer.Le(manifest.schema_fingerprint);
  writer.Le(static_cast<std::uint64_t>(list.size()));
  writer.Le(Checksum(list.bytes()));
  writer.Le(Checksum(writer.bytes()));
  writer.Bytes(list.bytes());
  return writer.Release();
}

bool IsManifest(std::span<const std::byte> begin) {
  ByteReader reader(begin);
  return reader.ReadLe<std::uint64_t>() == kManifestMagic && reader.ok();
}

// The checksum is compared before the version, so that damage is not reported as a newer format.
// Every later format has to keep this header's length and the place of its checksum for that
// reason. A higher minor version is accepted: what a reader must know has a bit in the features.
Result<std::uint64_t> PackManifestBytes(std::span<const std::byte> header) {
  if (!IsManifest(header)) return InvalidManifest("not the manifest of a set of packs");
  if (header.size() < kManifestHeaderBytes) return Damaged(kManifestPart, "the header ends early");
  ByteReader reader(header.subspan(sizeof(std::uint64_t)));
  const auto major = reader.ReadLe<std::uint16_t>();
  const auto minor = reader.ReadLe<std::uint16_t>();
  reader.Take(4);
  const auto features = reader.ReadLe<std::uint64_t>();
  reader.Take(16);  // generation, fingerprint
  const auto bytes = reader.ReadLe<std::uint64_t>();
  reader.Take(8);
  const auto checksum = reader.ReadLe<std::uint64_t>();
  if (Checksum(header.first(kManifestHeaderBytes - sizeof(std::uint64_t))) != checksum) {
    return Damaged(kManifestPart, "the header does not match its checksum");
  }
  if (major != kManifestMajor || features != 0) {
    return Error(ErrorCode::kUnimplemented,
                 "manifest: written by format " + std::to_string(major) + "." +
                     std::to_string(minor) + " with features that this reader (" +
                     std::to_string(kManifestMajor) + "." + std::to_string(kManifestMinor) +
                     ") does not know; use a newer one");
  }
  // Callers allocate as many bytes as this function returns, and a checksum keeps no one from
  // writing a huge number.
  if (bytes > limits::kPackManifestBytesMax - kManifestHeaderBytes) {
    return Damaged(kManifestPart, "the list of shards has more than " +
                                      std::to_string(limits::kPackManifestBytesMax) + " bytes");
  }
  return kManifestHeaderBytes + bytes;
}

Result<PackManifest> ReadPackManifest(std::span<const std::byte> bytes) {
  FOREBAY_ASSIGN(const std::uint64_t size, PackManifestBytes(bytes));
  if (bytes.size() != size) {
    return Damaged(kManifestPart, "the file has " + std::to_string(bytes.size()) +
                                      " bytes, and its header says " + std::to_string(size));
  }
  const std::span<const std::byte> list = bytes.subspan(kManifestHeaderBytes);
  PackManifest manifest;
  // PackManifestBytes has checked the header. These two words begin at byte 24; the list's length,
  // which is known by now, and the list's checksum follow them.
  ByteReader header(bytes.subspan(24));
  manifest.generation = header.ReadLe<std::uint64_t>();
  manifest.schema_fingerprint = header.ReadLe<std::uint64_t>();
  header.Take(8);
  if (Checksum(list) != header.ReadLe<std::uint64_t>()) {
    return Damaged(kManifestPart, "the list of shards does not match its checksum");
  }
  ByteReader reader(list);
  const std::uint64_t shards = reader.ReadVarint();
  // No memory is reserved for this number. An entry without bytes is refused, so the list cannot
  // yield more shards than it has bytes.
  if (shards > limits::kPackShardsMax) return Damaged(kManifestPart, "there are too many shards");
  for (std::uint64_t i = 0; i < shards && reader.ok(); ++i) {
    // A later version may append to a shard's entry: the entry's length is given, and what this
    // version does not know is skipped.
    ByteReader part(reader.Take(static_cast<std::size_t>(reader.ReadVarint())));
    ShardEntry shard;
    shard.name = std::string(part.ReadString(limits::kPathBytesMax));
    shard.file_bytes = part.ReadLe<std::uint64_t>();
    shard.samples = part.ReadLe<std::uint64_t>();
    shard.root = part.ReadLe<std::uint64_t>();
    if (!part.ok()) return Damaged(kManifestPart, "a shard's entry ends early");
    manifest.shards.push_back(std::move(shard));
  }
  if (!reader.ok()) return Damaged(kManifestPart, "the list of shards ends early");
  if (reader.remaining() != 0) return Damaged(kManifestPart, "bytes behind the list of shards");
  // The same check as at writing; in a file that was read, what it finds is damage.
  const Status sound = CheckManifest(manifest);
  if (!sound.has_value()) return Damaged(kManifestPart, sound.error().message());
  return manifest;
}

}  // namespace forebay::compress
