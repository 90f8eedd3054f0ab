// Fuzz target: the manifest of a set of packs. An input is a manifest whose checksums are made
// right. What parses is within limits, leads nowhere else and is written the same again.
#include <cstdint>
#include <vector>

#include "compress/format/pack/pack_manifest.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

void Put(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

void Check(std::span<const std::byte> input) {
  // First the bytes as they are, which mostly end at a checksum; then with checksums that are
  // right.
  static_cast<void>(ReadPackManifest(input));
  if (input.size() < kManifestHeaderBytes) return;
  std::vector<std::byte> bytes(input.begin(), input.end());
  // The size and the checksum of the list, then the checksum of the header, which covers both.
  Put(bytes, 40, bytes.size() - kManifestHeaderBytes);
  Put(bytes, 48, Checksum(std::span(bytes).subspan(kManifestHeaderBytes)));
  Put(bytes, 56, Checksum(std::span(bytes).first(56)));
  const auto manifest = ReadPackManifest(bytes);
  if (!manifest.has_value()) return;
  if (!CheckManifest(*manifest).has_value()) __builtin_trap();
  std::uint64_t samples = 0;
  for (const ShardEntry& shard : manifest->shards) {
    if (!IsShardName(shard.name) || shard.samples > limits::kSampleCountMax - samples) {
      __builtin_trap();
    }
    samples += shard.samples;
  }
  // A manifest has one form: after it was read, written and read again, it is written in the same
  // bytes.
  const auto once = WritePackManifest(*manifest);
  const auto again = ReadPackManifest(once);
  if (!again.has_value() || WritePackManifest(*again) != once) __builtin_trap();
}

}  // namespace
}  // namespace forebay::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  forebay::compress::Check(std::as_bytes(std::span(data, size)));
  return 0;
}
