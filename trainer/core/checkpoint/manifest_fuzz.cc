// Fuzz target: manifests of checkpoints, behind their checksum. What parses is written so that it
// reads the same.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/contract/checksum.h"
#include "trainer/core/checkpoint/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::train;
  const std::string covered(reinterpret_cast<const char*>(data), size);
  (void)DecodeManifest(covered).has_value();
  // A fuzzer does not find checksums: the rest is tried behind the right one.
  const std::uint64_t hash = forebay::Checksum(std::as_bytes(std::span(covered)));
  const auto manifest = DecodeManifest(fmt::format("{{\"xxh3\": \"{:016x}\",\n{}", hash, covered));
  if (!manifest.has_value()) return 0;
  if (manifest->shards.empty() || manifest->shards.size() > kShardsMax) __builtin_trap();
  if (manifest->state.best && !std::isfinite(manifest->state.best->value)) return 0;
  const auto again = DecodeManifest(EncodeManifest(*manifest));
  if (!again.has_value() || again->state != manifest->state ||
      again->shards != manifest->shards) {
    __builtin_trap();
  }
  return 0;
}
