// Quoting and the common form of parser errors. A file name can hold any byte except NUL and '/',
// so an unquoted name could move the cursor of a terminal or forge a line of a log.
#include "server/catalog/input_error.h"

namespace forebay::catalog {
namespace {

constexpr std::size_t kShownBytesMax = 200;
constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

std::string Quoted(std::string_view name) {
  std::string text = "'";
  for (const char c : name.substr(0, kShownBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    // Bytes of UTF-8 sequences (>= 0x80) stay as they are, so that names in any script are
    // readable.
    if (byte < 0x20 || byte == 0x7F || c == '\'' || c == '\\') {
      text += "\\x";
      text += kHexDigits[byte >> 4];
      text += kHexDigits[byte & 0xF];
    } else {
      text += c;
    }
  }
  if (name.size() > kShownBytesMax) text += "...";
  return text + "'";
}

Error InputError(ErrorCode code, std::string_view file, std::uint64_t offset,
                 std::string_view reason) {
  return Error(code, Quoted(file) + " at offset " + std::to_string(offset) + ": " +
                         std::string(reason));
}

}  // namespace forebay::catalog
