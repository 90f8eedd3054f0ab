// SampleFiles: a data set on disk, and the hash of each of its samples, known to whoever wrote it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/fault/fault_case.h"

namespace forebay::fault {

// stage.request: so that what a tar's pass has under way fits into a small RAM tier.
inline constexpr std::uint64_t kRequestBytes = 256 << 10;

// The hash that readers are compared by: of the bytes of all fields that lie in files, in order.
// It shares nothing with the checksums of the service.
std::uint64_t SampleHash(std::span<const std::byte> bytes);

struct SampleFiles {
  std::string config;                  // lines of a [[dataset]] that describe the format
  std::vector<std::uint64_t> hashes;   // of all samples, sorted
  std::uint64_t bytes = 0;             // of all files
  std::uint64_t reads = 0;             // requests of kRequestBytes that read them all
};

// Writes about `bytes` of samples beneath the existing `folder`.
SampleFiles WriteSamples(const std::string& folder, Format format, std::uint64_t bytes,
                         std::uint64_t seed);

}  // namespace forebay::fault
