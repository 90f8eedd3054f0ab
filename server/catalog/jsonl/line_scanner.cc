// The scanner keeps where the current line begins, its length so far, and two facts about it:
// whether it has content, and whether its last byte is CR. It does not keep the line's bytes.
#include "server/catalog/jsonl/line_scanner.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "proto/contract/limits.h"
#include "server/catalog/input_error.h"

namespace forebay::catalog {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::uint64_t kMarkBytesMax = 4;  // the longest byte order mark is UTF-32's
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF"sv;

// Returns the name of the encoding, other than UTF-8, whose byte order mark `start` begins with;
// empty if there is none. UTF-32 is tested first, because its little-endian mark begins with
// UTF-16's.
std::string_view RefusedEncoding(std::string_view start) {
  if (start.starts_with("\xFF\xFE\0\0"sv) || start.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (start.starts_with("\xFF\xFE"sv) || start.starts_with("\xFE\xFF"sv)) return "UTF-16";
  return "";
}

// ASCII white space. std::isspace depends on the locale, so it could give two daemons two catalogs.
bool IsSpace(std::byte byte) {
  const auto c = static_cast<unsigned char>(byte);
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

Error LineScanner::Refuse(std::uint64_t offset, const std::string& reason, ErrorCode code) const {
  return InputError(code, file_.path, offset, reason);
}

Status LineScanner::Feed(std::span<const std::byte> bytes) {
  if (bytes.size() > file_.bytes - fed_bytes_) {
    return Refuse(file_.bytes,
                  "the file grew beyond its size of " + std::to_string(file_.bytes) + " bytes",
                  ErrorCode::kFailedPrecondition);
  }
  fed_bytes_ += bytes.size();
  if (!is_started_) {
    // The mark may arrive in several pieces, so its bytes collect in start_ first.
    const std::uint64_t wanted = std::min(kMarkBytesMax, file_.bytes);
    const std::size_t taken = std::min<std::size_t>(wanted - start_.size(), bytes.size());
    start_.append(reinterpret_cast<const char*>(bytes.data()), taken);
    bytes = bytes.subspan(taken);
    if (start_.size() < wanted) return {};
    is_started_ = true;
    FOREBAY_TRY(SkipMark());
  }
  return Scan(bytes);
}

// Examines the first bytes of the file, and scans those that follow the mark.
Status LineScanner::SkipMark() {
  const std::string_view encoding = RefusedEncoding(start_);
  if (!encoding.empty()) {
    return Refuse(0, "the file begins with a byte order mark of " + std::string(encoding) +
                         "; convert it to UTF-8, in which lines end with the byte 0x0A");
  }
  if (start_.starts_with(kUtf8Mark)) offset_ = kUtf8Mark.size();
  return Scan(std::as_bytes(std::span(start_)).subspan(offset_));
}

Status LineScanner::Scan(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const void* found = std::memchr(bytes.data(), '\n', bytes.size());
    if (found == nullptr) return Extend(bytes);
    const auto length =
        static_cast<std::size_t>(static_cast<const std::byte*>(found) - bytes.data());
    FOREBAY_TRY(Extend(bytes.first(length)));
    FOREBAY_TRY(EndLine(/*end_bytes=*/1));
    bytes = bytes.subspan(length + 1);
  }
  return {};
}

// Adds bytes to the current line. None of them is LF.
Status LineScanner::Extend(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};  // keeps ends_with_cr_
  has_content_ = has_content_ || !std::ranges::all_of(bytes, IsSpace);
  ends_with_cr_ = bytes.back() == std::byte{'\r'};
  bytes_ += bytes.size();
  return CheckLength();
}

// Refuses a line as soon as it is certain to be too long, so that the caller need not keep it. A CR
// that is the last byte so far may still be part of the line end, so it does not count yet.
Status LineScanner::CheckLength() const {
  const std::uint64_t bytes_min = bytes_ - (ends_with_cr_ ? 1 : 0);
  if (!has_content_ || bytes_min <= file_.line_bytes_max) return {};
  return Refuse(offset_,
                "line " + std::to_string(number_) + " has more than " +
                    std::to_string(file_.line_bytes_max) +
                    " bytes, the size of an extent: raise the data set's key 'extent' (at most " +
                    std::to_string(limits::kExtentBytesMax) + "), or split the line",
                ErrorCode::kResourceExhausted);
}

// Ends the current line and begins the next one. `end_bytes` is 1 at an LF and 0 at the end of the
// file.
Status LineScanner::EndLine(std::uint64_t end_bytes) {
  const TextLine line{
      .number = number_, .offset = offset_, .bytes = bytes_ - (ends_with_cr_ ? 1 : 0)};
  // The state of the next line is set before on_line_ runs, because on_line_ may ask for
  // next_line_offset().
  const bool is_sample = has_content_;
  ++number_;
  offset_ += bytes_ + end_bytes;
  bytes_ = 0;
  has_content_ = false;
  ends_with_cr_ = false;
  return is_sample ? on_line_(line) : Status();
}

Status LineScanner::End() {
  if (fed_bytes_ != file_.bytes) {
    return Refuse(fed_bytes_,
                  "the file ended before its size of " + std::to_string(file_.bytes) +
                      " bytes; it was truncated while it was read",
                  ErrorCode::kDataLoss);
  }
  // A CR at the very end is part of the line, because no LF follows it.
  ends_with_cr_ = false;
  FOREBAY_TRY(CheckLength());
  return EndLine(/*end_bytes=*/0);
}

std::uint64_t LineScanner::next_line_offset() const {
  // White space that is longer than an extent cannot be the start of a sample, which would be too
  // long. Its bytes need not be kept.
  const bool is_blank = !has_content_ && bytes_ > file_.line_bytes_max;
  return is_blank ? offset_ + bytes_ : offset_;
}

}  // namespace forebay::catalog
