// LineScanner: finds the lines of a text file that is fed in pieces of any size.
// JsonLinesObjectScanner feeds it and cuts extents between the lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "proto/contract/result.h"

namespace forebay::catalog {

// A line that is a sample, as it lies in the file.
struct TextLine {
  std::uint64_t number = 0;  // from 1; lines that are no samples count too
  std::uint64_t offset = 0;  // of its first byte, in the file
  std::uint64_t bytes = 0;   // at least 1; without the line end
};

// Calls `on_line` for each line with at least one byte that is not white space, when its end is
// known. A line ends before LF, before CR LF, or at the end of the file. A UTF-8 byte order mark at
// the start of the file belongs to no line. Refuses UTF-16 and UTF-32 by their byte order marks,
// and lines of more than `line_bytes_max` bytes. Does not look at the contents of lines otherwise.
//
// The result does not depend on how the file is cut into pieces. Keeps only the first four bytes.
// Not thread-safe. Unusable after an error.
class LineScanner {
 public:
  struct File {
    std::string path;                  // for errors
    std::uint64_t bytes = 0;           // its size
    std::uint64_t line_bytes_max = 0;  // for each line
  };
  using LineVisitor = std::function<Status(const TextLine&)>;

  LineScanner(File file, LineVisitor on_line)
      : file_(std::move(file)), on_line_(std::move(on_line)) {}

  // kFailedPrecondition: the file has more bytes than its size.
  Status Feed(std::span<const std::byte> bytes);
  // kDataLoss: fewer bytes than the file's size were fed.
  Status End();

  // No later call of `on_line` reports a line that begins before this offset.
  std::uint64_t next_line_offset() const;

 private:
  Error Refuse(std::uint64_t offset, const std::string& reason,
               ErrorCode code = ErrorCode::kInvalidArgument) const;
  Status SkipMark();
  Status Scan(std::span<const std::byte> bytes);
  Status Extend(std::span<const std::byte> bytes);
  Status CheckLength() const;
  Status EndLine(std::uint64_t end_bytes);

  const File file_;
  const LineVisitor on_line_;
  std::uint64_t fed_bytes_ = 0;
  std::string start_;        // the first bytes of the file, which may be a byte order mark
  bool is_started_ = false;  // start_ is complete and was examined

  // The line that has not ended yet.
  std::uint64_t number_ = 1;
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;    // so far
  bool has_content_ = false;   // a byte that is not white space
  bool ends_with_cr_ = false;  // its last byte so far is CR
};

}  // namespace forebay::catalog
