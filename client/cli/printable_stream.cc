#include "client/cli/printable_stream.h"

#include <fmt/format.h>

namespace forebay::cli {
namespace {

constexpr unsigned char kHeadOfControls = 0xC2;  // of U+0080 to U+00BF in UTF-8

bool IsControl(unsigned char c) { return (c < ' ' && c != '\n' && c != '\t') || c == 0x7F; }

}  // namespace

std::string Printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (IsControl(c)) {
      shown += fmt::format("\\x{:02x}", c);
    } else if (c == kHeadOfControls && next >= 0x80 && next < 0xA0) {
      shown += fmt::format("\\x{:02x}\\x{:02x}", c, next);
      ++i;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

PrintableStream::Buffer::int_type PrintableStream::Buffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char text = traits_type::to_char_type(c);
  return xsputn(&text, 1) == 1 ? c : traits_type::eof();
}

std::streamsize PrintableStream::Buffer::xsputn(const char* text, std::streamsize count) {
  std::string whole = head_ + std::string(text, static_cast<std::size_t>(count));
  head_.clear();
  if (!whole.empty() && static_cast<unsigned char>(whole.back()) == kHeadOfControls) {
    head_ = whole.back();
    whole.pop_back();
  }
  sink_ << Printable(whole);
  return sink_ ? count : 0;
}

int PrintableStream::Buffer::sync() {
  sink_.flush();
  return sink_ ? 0 : -1;
}

std::ostream& EraseLine(std::ostream& out) {
  constexpr std::string_view kErase = "\r\x1b[K";
  auto* const printable = dynamic_cast<PrintableStream::Buffer*>(out.rdbuf());
  (printable != nullptr ? printable->sink() : out) << kErase;
  return out;
}

}  // namespace forebay::cli
