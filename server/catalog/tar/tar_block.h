// Single blocks and records of tar archives: ustar headers, GNU and pax extensions, member paths.
// Pure functions over untrusted bytes. TarScanner calls them block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "proto/contract/align_up.h"
#include "proto/contract/result.h"

namespace forebay::catalog {

inline constexpr std::uint64_t kTarBlockBytes = 512;

constexpr std::uint64_t RoundToTarBlock(std::uint64_t bytes) {
  return AlignUp(bytes, kTarBlockBytes);
}

// The place of bytes, for error messages.
struct TarPlace {
  std::string_view archive;
  std::uint64_t offset = 0;
};

struct TarBlock {
  char type = '0';
  std::string path;         // prefix and name, as stored
  std::string link;         // the target of a link, as stored
  std::uint64_t bytes = 0;  // size of the data that follows the header
};

bool IsZeroBlock(std::span<const std::byte> block);

// Parses a header block of kTarBlockBytes: v7, ustar or GNU. Verifies its checksum first.
Result<TarBlock> ParseTarBlock(TarPlace place, std::span<const std::byte> block);

// The records of a pax extended header that Forebay uses; it ignores all others.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<std::uint64_t> bytes;
};
// Parses pax records, of the form "<length> <key>=<value>\n". kUnimplemented for sparse files.
// Errors name the offset of the record.
Result<PaxRecords> ParsePax(TarPlace place, std::string_view text);

// Returns `path` without "." and empty components. kInvalidArgument if it is absolute, contains
// ".." or a NUL byte, or is longer than limits::kPathBytesMax.
Result<std::string> NormalizeMemberPath(TarPlace place, std::string_view path);

// WebDataset's rule: the key is the path up to the first dot of its last component, the
// extension (lower case) names the field.
struct SampleName {
  std::string key;
  std::string field;
};
// nullopt if the path is no part of a sample: its last component has no dot, or nothing before or
// after the first dot.
std::optional<SampleName> SplitMemberPath(std::string_view path);

}  // namespace forebay::catalog
