// Test support: tar archives written byte by byte, so that a test can make any mistake.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace forebay::catalog {

struct TarEntry {
  std::string path;
  std::string data;
  char type = '0';
  std::string prefix = {};  // ustar's
  std::string size_field = {};  // 12 raw bytes instead of the octal size
  bool has_gnu_magic = false;
  bool has_magic = true;     // false: v7
  bool is_padded = true;
};

// Header and data of one member.
std::string TarMemberText(const TarEntry& entry);
// A regular file.
std::string TarFileText(std::string_view path, std::string_view data);
// One pax record "<length> <key>=<value>\n".
std::string PaxRecordText(std::string_view key, std::string_view value);
// A pax extended header ('x', or 'g') of these records.
std::string PaxHeaderText(std::string_view records, char type = 'x');
// GNU's long name for the member that follows.
std::string GnuLongNameText(std::string_view path);
// The end marker.
std::string TarEndText();
// Writes the header checksum into the block that starts at `offset`.
void FixTarChecksum(std::string& archive, std::size_t offset);

}  // namespace forebay::catalog
