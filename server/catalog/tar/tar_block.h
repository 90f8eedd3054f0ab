// Single blocks and records of tar archives: ustar headers, GNU and pax extensions, member
// paths. Pure functions over untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::catalog {

inline constexpr std::uint64_t kTarBlockBytes = 512;

constexpr std::uint64_t RoundToTarBlock(std::uint64_t bytes) {
  return (bytes + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes;
}

// Where bytes stand, for errors.
struct TarPlace {
  std::string_view archive;
  std::uint64_t offset = 0;
};

struct TarBlock {
  char type = '0';
  std::string path;         // prefix and name, as stored
  std::string link;         // of a link: its target, as stored
  std::uint64_t bytes = 0;  // of the data that follows
};

bool IsZeroBlock(std::span<const std::byte> block);

// A header block of kTarBlockBytes: checksum, then name, size and type. v7, ustar and GNU.
Result<TarBlock> ParseTarBlock(TarPlace place, std::span<const std::byte> block);

// What the records of a pax extended header say that concerns Forebay.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<std::uint64_t> bytes;
};
// kUnimplemented for sparse files. Offsets in errors are those of the record.
Result<PaxRecords> ParsePax(TarPlace place, std::string_view text);

// `path` without "." and empty components. kInvalidArgument: absolute, "..", a NUL byte, or
// longer than limits::kPathBytesMax.
Result<std::string> NormalizeMemberPath(TarPlace place, std::string_view path);

// WebDataset's rule: the key is the path up to the first dot of its last component, the
// extension (lower case) names the field.
struct SampleName {
  std::string key;
  std::string field;
};
// nullopt: not part of a sample (no dot, nothing before it or nothing after it).
std::optional<SampleName> SplitMemberPath(std::string_view path);

}  // namespace forebay::catalog
