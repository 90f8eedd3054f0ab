// Fuzz target: the manifest, once as the fuzzer made it and once with the checksums of its header
// and records corrected. The result is valid, accounts for every record, and can be written and
// read again.
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/contract/checksum.h"
#include "server/tier/ssd/manifest_log.h"

namespace forebay::tier {
namespace {

constexpr std::size_t kSummedBytes = kManifestRecordBytes - sizeof(std::uint64_t);

std::uint64_t WordAt(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof(word));
  return word;
}

// docs/segment.md: a record's checksum covers its generation and its place.
void Seal(std::vector<std::byte>& manifest) {
  const std::uint64_t magic = WordAt(EncodeManifestHeader(0), 0);
  if (manifest.size() < kManifestRecordBytes) return;
  // The header is summed under generation 0, and the records under its own.
  const std::uint64_t generation = WordAt(manifest, 16);
  for (std::size_t at = 0; manifest.size() - at >= kManifestRecordBytes;
       at += kManifestRecordBytes) {
    const std::uint64_t sum = Checksum({at == 0 ? 0 : generation, magic, at, kSummedBytes},
                                       std::span(manifest).subspan(at, kSummedBytes));
    std::memcpy(manifest.data() + at + kSummedBytes, &sum, sizeof(sum));
  }
}

void CheckAgain(const ParsedManifest& manifest) {
  std::vector<std::byte> bytes = EncodeManifestHeader(manifest.generation);
  for (const ManifestRecord& record : manifest.records) {
    if (!record.shape.IsValid()) __builtin_trap();
    const auto encoded = EncodeManifestRecord(record, manifest.generation, bytes.size());
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  const auto again = ParseManifest(bytes);
  if (!again.has_value() || again->records.size() != manifest.records.size() ||
      again->dropped_records != 0 || again->has_torn_tail) {
    __builtin_trap();
  }
  for (std::size_t i = 0; i < manifest.records.size(); ++i) {
    if (again->records[i].key != manifest.records[i].key) __builtin_trap();
  }
}

void Check(std::span<const std::byte> bytes) {
  // Another version is an error, and the only one.
  const auto manifest = ParseManifest(bytes);
  if (!manifest.has_value()) return;
  const std::uint64_t slots = (bytes.size() + kManifestRecordBytes - 1) / kManifestRecordBytes;
  const std::uint64_t found = manifest->records.size() + manifest->dropped_records +
                              (manifest->has_torn_tail ? 1 : 0);
  // The header is a slot of its own, dropped with the rest where it is damaged.
  if (found != slots && found + 1 != slots) __builtin_trap();
  CheckAgain(*manifest);
}

}  // namespace
}  // namespace forebay::tier

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto raw = std::as_bytes(std::span(data, size));
  std::vector<std::byte> manifest(raw.begin(), raw.end());
  forebay::tier::Check(manifest);
  forebay::tier::Seal(manifest);
  forebay::tier::Check(manifest);
  return 0;
}
