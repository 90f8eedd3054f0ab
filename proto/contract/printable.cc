// Decodes UTF-8 character by character and writes what could control a terminal as \xNN. Bytes that
// are no UTF-8 pass unless they are control codes of an 8-bit terminal (0x80 to 0x9F), because file
// names on Linux need not be UTF-8.
#include "proto/contract/printable.h"

#include <algorithm>

namespace forebay {
namespace {

constexpr std::size_t kQuotedBytesMax = 200;

// The length of the UTF-8 character that begins with `first`; 1 if no character begins with it.
std::size_t LengthBy(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 1;
}

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// A character, or a single byte that is no part of one.
struct Character {
  std::size_t bytes = 1;
  char32_t code = 0;
};

Character FirstOf(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const Character alone = {.bytes = 1, .code = first};
  const std::size_t bytes = LengthBy(first);
  if (bytes == 1 || bytes > text.size()) return alone;
  char32_t code = first & (0xFFU >> (bytes + 1));
  for (const char c : text.substr(1, bytes - 1)) {
    if (!Continues(c)) return alone;
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3FU);
  }
  // Overlong forms would hide a control character from the check below, so they are no characters.
  const char32_t least = bytes == 2 ? 0x80 : bytes == 3 ? 0x800 : 0x10000;
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < least || code > 0x10FFFF || surrogate) return alone;
  return {.bytes = bytes, .code = code};
}

// True for characters that are written as \xNN.
bool IsControl(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) ||
         (code >= 0x2028 && code <= 0x202E) ||  // line and paragraph separators; direction
         (code >= 0x2066 && code <= 0x2069);    // direction isolates
}

// Which characters are written as \xNN besides control characters, and which of those are not.
struct Escapes {
  std::string_view also = {};
  std::string_view except = {};
};

bool Contains(std::string_view characters, char c) {
  return characters.find(c) != std::string_view::npos;
}

std::string Shown(std::string_view text, const Escapes& escapes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  while (!text.empty()) {
    const Character next = FirstOf(text);
    const char first = text.front();
    const bool is_escaped = IsControl(next.code) ? !Contains(escapes.except, first)
                                                 : Contains(escapes.also, first);
    for (const char c : text.substr(0, next.bytes)) {
      if (!is_escaped) {
        shown += c;
        continue;
      }
      const auto byte = static_cast<unsigned char>(c);
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 0xFU]};
    }
    text.remove_prefix(next.bytes);
  }
  return shown;
}

}  // namespace

std::string PrintableText(std::string_view text) { return Shown(text, {.except = "\n\t"}); }

std::string PrintableLine(std::string_view text) { return Shown(text, {}); }

std::string Quoted(std::string_view name) {
  std::string_view shown = name.substr(0, kQuotedBytesMax);
  const bool is_cut = shown.size() < name.size();
  if (is_cut) shown.remove_suffix(UnfinishedBytes(shown));
  return "'" + Shown(shown, {.also = "'\\"}) + (is_cut ? "...'" : "'");
}

std::size_t UnfinishedBytes(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(3, text.size()); ++bytes) {
    const char c = text[text.size() - bytes];
    if (Continues(c)) continue;
    return LengthBy(static_cast<unsigned char>(c)) > bytes ? bytes : 0;
  }
  return 0;
}

}  // namespace forebay
