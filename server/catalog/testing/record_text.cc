// Writes the headers of IDX and .npy files, right or wrong as the test asks.
#include "server/catalog/testing/record_text.h"

namespace forebay::catalog {

std::string IdxText(char type, const std::vector<std::uint32_t>& sizes, std::string_view data) {
  std::string text = {'\0', '\0', type, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
  }
  return text + std::string(data);
}

std::string NpyText(const std::string& dict, std::string_view data) {
  std::string header = dict;
  header.resize((header.size() + 10 + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xFF);
  text += static_cast<char>(header.size() >> 8);
  return text + header + std::string(data);
}

}  // namespace forebay::catalog
