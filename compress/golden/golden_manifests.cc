// Makes the manifests among the golden files: a sound set of three packs, and manifests with one
// fault each, whose other checksums are right.
#include "compress/golden/golden_manifests.h"

#include <functional>
#include <utility>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

using Bytes = std::vector<std::byte>;

// Places in the header. They are written out here and not taken from the writer, so that a change
// of the layout is noticed.
constexpr std::size_t kAtMajor = 8, kAtFeatures = 16, kAtListBytes = 40, kAtListHash = 48;
constexpr std::size_t kAtHeaderHash = 56;

// Of packs of version 1, which nothing writes any more.
PackManifest Good() {
  PackManifest manifest;
  manifest.generation = 3;
  manifest.schema_fingerprint = 0x8362A96B55BC5399;
  manifest.shards.push_back({.name = "dense.fbp", .file_bytes = 2168, .samples = 4,
                             .root = 0x840A79DF526AD0CF});
  manifest.shards.push_back({.name = "balanced.fbp", .file_bytes = 2176, .samples = 4,
                             .root = 0x14B38ECE185D36B9});
  manifest.shards.push_back({.name = "fast.fbp", .file_bytes = 1704, .samples = 4,
                             .root = 0x5C5B96CA06A18DB3});
  return manifest;
}

void Put(Bytes& bytes, std::size_t at, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
  }
}

// Makes the checksums right: what is broken lies behind them.
Bytes Sealed(Bytes bytes) {
  // The list's checksum first, because the header's covers it.
  Put(bytes, kAtListHash, Checksum(std::span(bytes).subspan(kManifestHeaderBytes)), 8);
  Put(bytes, kAtHeaderHash, Checksum(std::span(bytes).first(kAtHeaderHash)), 8);
  return bytes;
}

// The good manifest with another list.
Bytes WithList(const Bytes& list) {
  Bytes bytes = WritePackManifest(Good());
  bytes.resize(kManifestHeaderBytes);
  bytes.insert(bytes.end(), list.begin(), list.end());
  Put(bytes, kAtListBytes, list.size(), 8);
  return Sealed(std::move(bytes));
}

Bytes Changed(const std::function<void(PackManifest&)>& change) {
  PackManifest manifest = Good();
  change(manifest);
  return WritePackManifest(manifest);
}

Bytes Edited(const std::function<void(Bytes&)>& edit, bool seal) {
  Bytes bytes = WritePackManifest(Good());
  edit(bytes);
  // A fault that the checksums would hide needs sealing; a fault of the checksums must not get it.
  return seal ? Sealed(std::move(bytes)) : bytes;
}

Bytes Varints(std::initializer_list<std::uint64_t> values) {
  ByteWriter writer;
  for (const std::uint64_t value : values) writer.Varint(value);
  return writer.Release();
}

// Faults of the list of shards. The checksums are right, so a reader reaches the list and must find
// the fault itself.
std::vector<BadManifest> BadLists() {
  const Bytes good = WritePackManifest(Good());
  // A byte behind the last entry, which the list's size covers.
  Bytes longer(good.begin() + kManifestHeaderBytes, good.end());
  longer.push_back(std::byte{0});
  const auto loss = ErrorCode::kDataLoss;
  return {
      {"set_no_shards", WithList(Varints({0})), loss, "1 to"},
      {"set_too_many_shards", WithList(Varints({limits::kPackShardsMax + 1})), loss, "too many"},
      {"set_short_entry", WithList(Varints({1, 2, 0, 0})), loss, "entry ends early"},
      // An entry of 2^64 - 1 bytes: adding its size to an offset would wrap.
      {"set_endless_entry", WithList(Varints({1, ~std::uint64_t{0}})), loss, "ends early"},
      {"set_longer_list", WithList(longer), loss, "bytes behind the list"},
      // The writer does not check what it is given, so these lists come from WritePackManifest.
      {"set_repeated_name", Changed([](PackManifest& m) { m.shards[1].name = m.shards[0].name; }),
       loss, "twice"},
      {"set_name_leads_out", Changed([](PackManifest& m) { m.shards[1].name = "../fast.fbp"; }),
       loss, "beneath its folder"},
      {"set_absolute_name", Changed([](PackManifest& m) { m.shards[1].name = "/fast.fbp"; }),
       loss, "beneath its folder"},
      {"set_empty_name", Changed([](PackManifest& m) { m.shards[1].name.clear(); }), loss,
       "beneath its folder"},
      {"set_too_many_samples",
       Changed([](PackManifest& m) { m.shards[1].samples = ~std::uint64_t{0}; }), loss,
       "samples"},
      {"set_generation_zero", Changed([](PackManifest& m) { m.generation = 0; }), loss,
       "count from 1"},
  };
}

}  // namespace

std::vector<std::byte> MakeGoodManifest() { return WritePackManifest(Good()); }

// Faults of the header and the file's length. Where only the checksum is to be wrong, or the file
// is cut, nothing is sealed again.
std::vector<BadManifest> MakeBadManifests() {
  const auto loss = ErrorCode::kDataLoss;
  std::vector<BadManifest> all = {
      {"set_wrong_magic", Edited([](Bytes& b) { b[0] ^= std::byte{1}; }, true),
       ErrorCode::kInvalidArgument, "not the manifest"},
      {"set_header_checksum", Edited([](Bytes& b) { b[24] ^= std::byte{1}; }, false), loss,
       "header does not match"},
      {"set_list_checksum", Edited([](Bytes& b) { b[70] ^= std::byte{1}; }, false), loss,
       "list of shards does not match"},
      {"set_newer_version", Edited([](Bytes& b) { Put(b, kAtMajor, 2, 2); }, true),
       ErrorCode::kUnimplemented, "use a newer one"},
      {"set_unknown_feature", Edited([](Bytes& b) { Put(b, kAtFeatures, 1, 8); }, true),
       ErrorCode::kUnimplemented, "use a newer one"},
      {"set_huge_list",
       Edited([](Bytes& b) { Put(b, kAtListBytes, limits::kPackManifestBytesMax, 8); }, true),
       loss, "list of shards has more than"},
      {"set_cut_header", Edited([](Bytes& b) { b.resize(40); }, false), loss, "ends early"},
      {"set_cut_list", Edited([](Bytes& b) { b.pop_back(); }, false), loss, "its header says"},
      {"set_longer_file", Edited([](Bytes& b) { b.push_back({}); }, false), loss,
       "its header says"},
  };
  for (BadManifest& bad : BadLists()) all.push_back(std::move(bad));
  return all;
}

}  // namespace forebay::compress
