// PrintableStream: what `forebay` prints passes through one, as PrintableText. Names and messages
// that come from data, or from another program, are made PrintableLine where they are put in.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>

namespace forebay::cli {

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
    ~Buffer() override { ShowHead(); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    std::ostream& sink() { return sink_; }

   protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize count) override;
    int sync() override;

   private:
    void ShowHead();

    std::ostream& sink_;
    std::string head_;  // of a character whose other bytes have not come
  };
  Buffer buffer_;
};

// Goes to the begin of the terminal's line and empties it: the one control sequence there is.
// Use: out << EraseLine.
std::ostream& EraseLine(std::ostream& out);

}  // namespace forebay::cli
