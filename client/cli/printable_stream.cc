// Lets text through and shows every other byte as an escape, so that nothing from a data set or a
// daemon moves the cursor or ends a line. A character of several bytes may be cut between two
// writes; its head waits for the rest.
#include "client/cli/printable_stream.h"

#include <string_view>

#include "proto/contract/printable.h"

namespace forebay::cli {

PrintableStream::Buffer::int_type PrintableStream::Buffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char text = traits_type::to_char_type(c);
  return xsputn(&text, 1) == 1 ? c : traits_type::eof();
}

std::streamsize PrintableStream::Buffer::xsputn(const char* text, std::streamsize count) {
  // At most three bytes wait in the head, so this copies little more than the text.
  std::string whole = head_ + std::string(text, static_cast<std::size_t>(count));
  const std::size_t unfinished = UnfinishedBytes(whole);
  head_ = whole.substr(whole.size() - unfinished);
  whole.resize(whole.size() - unfinished);
  sink_ << PrintableText(whole);
  return sink_ ? count : 0;
}

// What is flushed, or ends, is waited for no longer.
void PrintableStream::Buffer::ShowHead() {
  sink_ << PrintableText(head_);
  head_.clear();
}

int PrintableStream::Buffer::sync() {
  ShowHead();
  sink_.flush();
  return sink_ ? 0 : -1;
}

std::ostream& EraseLine(std::ostream& out) {
  constexpr std::string_view kErase = "\r\x1b[K";
  // The escape sequence has to pass by the filter, which would print it as text.
  auto* const printable = dynamic_cast<PrintableStream::Buffer*>(out.rdbuf());
  (printable != nullptr ? printable->sink() : out) << kErase;
  return out;
}

}  // namespace forebay::cli
