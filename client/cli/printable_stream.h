// PrintableStream: what `forebay` prints passes through one. Names and messages that come from
// data, or from another program, move no cursor and change no terminal.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace forebay::cli {

// `text` with each control character, but line ends and tabs, written as "\x1b" is here. UTF-8
// passes, but its control characters (U+0080 to U+009F) do not.
std::string Printable(std::string_view text);

class PrintableStream final : public std::ostream {
 public:
  // `sink` is borrowed.
  explicit PrintableStream(std::ostream& sink) : std::ostream(nullptr), buffer_(sink) {
    rdbuf(&buffer_);
  }

 private:
  friend std::ostream& EraseLine(std::ostream& out);
  class Buffer final : public std::streambuf {
   public:
    explicit Buffer(std::ostream& sink) : sink_(sink) {}
    std::ostream& sink() { return sink_; }

   protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize count) override;
    int sync() override;

   private:
    std::ostream& sink_;
    std::string head_;  // of a character whose second byte has not come
  };
  Buffer buffer_;
};

// Goes to the begin of the terminal's line and empties it: the one control sequence there is.
// Use: out << EraseLine.
std::ostream& EraseLine(std::ostream& out);

}  // namespace forebay::cli
