// Writes tar headers field by field, so that a test can give any field a wrong value.
#include "server/catalog/testing/tar_text.h"

#include <algorithm>
#include <cstdio>

namespace forebay::catalog {
namespace {

std::string Octal(std::uint64_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

void FixTarChecksum(std::string& archive, std::size_t offset) {
  archive.replace(offset + 148, 8, "        ");
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[offset + i]);
  archive.replace(offset + 148, 7, Octal(sum, 6) + '\0');
}

std::string TarMemberText(const TarEntry& entry) {
  std::string block(512, '\0');
  block.replace(0, std::min<std::size_t>(entry.path.size(), 100), entry.path.substr(0, 100));
  block.replace(100, 7, "0000644");
  block.replace(124, 11, Octal(entry.data.size(), 11));
  std::string size_field = entry.size_field;
  size_field.resize(12, '\0');
  if (!entry.size_field.empty()) block.replace(124, 12, size_field);
  block.replace(136, 11, "00000000000");
  block[156] = entry.type;
  if (entry.has_gnu_magic) {
    block.replace(257, 7, "ustar  ");
  } else if (entry.has_magic) {
    block.replace(257, 5, "ustar");
    block.replace(263, 2, "00");
  }
  block.replace(345, entry.prefix.size(), entry.prefix);
  FixTarChecksum(block, 0);
  std::string text = block + entry.data;
  if (entry.is_padded) text.resize((text.size() + 511) / 512 * 512, '\0');
  return text;
}

std::string TarFileText(std::string_view path, std::string_view data) {
  return TarMemberText({.path = std::string(path), .data = std::string(data)});
}

std::string PaxRecordText(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;  // space, '=', newline
  std::size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) ++length;
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

std::string PaxHeaderText(std::string_view records, char type) {
  return TarMemberText({.path = "PaxHeaders/x", .data = std::string(records), .type = type});
}

std::string GnuLongNameText(std::string_view path) {
  return TarMemberText({.path = "././@LongLink",
                        .data = std::string(path) + '\0',
                        .type = 'L',
                        .has_gnu_magic = true});
}

std::string TarEndText() { return std::string(1024, '\0'); }

}  // namespace forebay::catalog
