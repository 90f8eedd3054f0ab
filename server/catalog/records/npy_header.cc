// The .npy parser of record_header.h: a recursive-descent parser of exactly the Python dict literal
// that NumPy writes, {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }. It
// accepts no other Python, and it never evaluates or unpickles anything. The bytes are untrusted;
// errors name the offset in the file.
#include <array>
#include <optional>
#include <string>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/input_error.h"
#include "server/catalog/records/record_header.h"

namespace forebay::catalog {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kDimensionsParsedMax = 32;  // NumPy's bound (NPY_MAXDIMS before NumPy 2)

struct NpyDtype {
  std::string_view code;  // without the byte-order character
  Dtype dtype;
};
// Booleans (b1) are delivered as bytes of 0 and 1. Complex numbers, texts and dates have no element
// type of a field.
constexpr std::array<NpyDtype, 10> kNpyDtypes = {{{"u1", Dtype::kU8}, {"b1", Dtype::kU8},
                                                  {"i1", Dtype::kI8}, {"u2", Dtype::kU16},
                                                  {"i2", Dtype::kI16}, {"i4", Dtype::kI32},
                                                  {"i8", Dtype::kI64}, {"f2", Dtype::kF16},
                                                  {"f4", Dtype::kF32}, {"f8", Dtype::kF64}}};

// Parses one header text, from text_[at_] on. Used once.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view path, std::string_view text, std::uint64_t text_offset)
      : path_(path), text_(text), text_offset_(text_offset) {}

  // Fills type, order and shape; the first dimension becomes sample_count.
  Status Parse(RecordHeader& header);

 private:
  Error Malformed(std::string_view reason, ErrorCode code = ErrorCode::kInvalidArgument) const {
    return InputError(code, path_, text_offset_ + at_, reason);
  }
  void SkipSpaces() {
    // NumPy pads with spaces and ends with a newline, so that the data begin at a multiple of 16 or
    // 64 bytes.
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  // Skips spaces, and consumes `token` if it comes next.
  bool Accept(std::string_view token) {
    SkipSpaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  Result<std::string_view> ParseQuoted();
  Status ParseEntry(RecordHeader& header);
  Status ParseDescr(RecordHeader& header);
  Status ParseShape();

  std::string_view path_;
  std::string_view text_;
  std::uint64_t text_offset_;
  std::size_t at_ = 0;
  bool has_descr_ = false;
  std::optional<bool> fortran_order_;
  std::optional<std::vector<std::uint64_t>> shape_;
};

// Parses a string literal. NumPy writes no escapes, so a backslash is refused and not interpreted.
Result<std::string_view> NpyHeaderParser::ParseQuoted() {
  SkipSpaces();
  if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
    return Malformed("expected a quoted string");
  }
  // The quotation mark that opened the literal also ends it, as in Python.
  const std::size_t end = text_.find(text_[at_], at_ + 1);
  if (end == std::string_view::npos) return Malformed("unterminated string");
  const std::string_view quoted = text_.substr(at_ + 1, end - at_ - 1);
  if (quoted.find('\\') != std::string_view::npos) return Malformed("escape in a string");
  at_ = end + 1;
  return quoted;
}

// Parses the element type: a byte order and a code, '<f4'.
Status NpyHeaderParser::ParseDescr(RecordHeader& header) {
  SkipSpaces();
  // A key that comes twice could be read in two ways; Python takes the last one.
  if (has_descr_) return Malformed("'descr' is given twice");
  if (at_ < text_.size() && text_[at_] == '[') {
    return Malformed("structured element types are not supported", ErrorCode::kUnimplemented);
  }
  const std::size_t start = at_;
  FOREBAY_ASSIGN(const std::string_view descr, ParseQuoted());
  has_descr_ = true;
  const std::size_t end = at_;
  at_ = start;  // so that the errors below name the offset of the type
  // Loading an object array would run pickled code from the file.
  if (descr.find('O') != std::string_view::npos) {
    return Malformed("object arrays hold pickled code and are never loaded",
                     ErrorCode::kUnimplemented);
  }
  // '|' means "no byte order", '=' the order of the machine that wrote the file, taken as
  // little-endian, which is the order of every machine that Forebay runs on.
  const char order = descr.empty() ? '\0' : descr.front();
  if (order != '<' && order != '>' && order != '|' && order != '=') {
    return Malformed("malformed element type " + Quoted(descr));
  }
  // A loop over ten entries; the codes of NumPy do not form an index.
  for (const NpyDtype& known : kNpyDtypes) {
    if (known.code != descr.substr(1)) continue;
    const bool is_single_byte = DtypeBytes(known.dtype) == 1;
    if (order == '|' && !is_single_byte) {
      return Malformed("element type " + Quoted(descr) + " lacks a byte order");
    }
    header.dtype = known.dtype;
    header.big_endian = order == '>' && !is_single_byte;
    at_ = end;
    return {};
  }
  return Malformed("element type " + Quoted(descr) + " is not supported",
                   ErrorCode::kUnimplemented);
}

// Parses a tuple of whole numbers: (), (3,), (3, 4).
Status NpyHeaderParser::ParseShape() {
  if (shape_.has_value()) return Malformed("'shape' is given twice");
  if (!Accept("(")) return Malformed("expected a tuple");
  shape_.emplace();
  // Each round consumes at least one digit, and the rounds are bounded, so any text ends this loop.
  while (!Accept(")")) {
    if (shape_->size() >= kDimensionsParsedMax) return Malformed("too many dimensions");
    SkipSpaces();
    std::uint64_t value = 0;
    const std::size_t first_digit = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      // Compared before the multiplication, which could wrap.
      if (value > (~std::uint64_t{0} - digit) / 10) return Malformed("dimension overflows");
      value = value * 10 + digit;
    }
    if (at_ == first_digit) return Malformed("expected a dimension");
    // NumPy on Python 2 wrote long integers as 3L.
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    shape_->push_back(value);
    if (Accept(",")) continue;
    // (3) is no tuple in Python, so a single dimension needs its comma.
    if (shape_->size() < 2 || !Accept(")")) return Malformed("expected ',' or ')'");
    break;
  }
  return {};
}

// Parses one `key: value`. The keys may come in any order; the format defines no others.
Status NpyHeaderParser::ParseEntry(RecordHeader& header) {
  FOREBAY_ASSIGN(const std::string_view key, ParseQuoted());
  if (!Accept(":")) return Malformed("expected ':'");
  if (key == "descr") return ParseDescr(header);
  if (key == "shape") return ParseShape();
  if (key != "fortran_order") return Malformed("unknown key " + Quoted(key));
  if (fortran_order_.has_value()) return Malformed("'fortran_order' is given twice");
  if (Accept("False")) {
    fortran_order_ = false;
  } else if (Accept("True")) {
    fortran_order_ = true;
  } else {
    return Malformed("expected True or False");
  }
  return {};
}

Status NpyHeaderParser::Parse(RecordHeader& header) {
  if (!Accept("{")) return Malformed("expected a dict literal");
  // Each of the three keys may come once, so this loop takes at most three rounds.
  while (!Accept("}")) {
    FOREBAY_TRY(ParseEntry(header));
    if (Accept(",")) continue;
    if (!Accept("}")) return Malformed("expected ',' or '}'");
    break;
  }
  // Text after the dict would be code to Python's eval, so it is refused.
  SkipSpaces();
  if (at_ != text_.size()) return Malformed("bytes after the dict literal");
  if (!has_descr_ || !fortran_order_.has_value() || !shape_.has_value()) {
    return Malformed("'descr', 'fortran_order' or 'shape' is missing");
  }
  if (shape_->empty()) {
    return Malformed("a zero-dimensional array has no samples", ErrorCode::kUnimplemented);
  }
  // The first dimension counts the samples. In Fortran order it varies fastest, so the bytes of one
  // sample are not consecutive. An array of one dimension is the same in both orders.
  if (*fortran_order_ && shape_->size() > 1) {
    return Malformed("Fortran order scatters each sample over the file; save the array in C order",
                     ErrorCode::kUnimplemented);
  }
  header.sample_count = shape_->front();
  header.shape.assign(shape_->begin() + 1, shape_->end());
  return {};
}

}  // namespace

Result<RecordHeader> ParseNpyHeader(const HeaderInput& input) {
  ByteReader reader(input.start);
  const std::span<const std::byte> magic = reader.Take(kNpyMagic.size());
  if (!reader.ok()) {
    return InputError(ErrorCode::kDataLoss, input.path, input.start.size(),
                      "the file is truncated within its .npy magic number");
  }
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), magic.size()) != kNpyMagic) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 0, "not an .npy file");
  }
  const auto major = reader.ReadLe<std::uint8_t>();
  const auto minor = reader.ReadLe<std::uint8_t>();
  // A later version could give the length or the keys another meaning, so it is refused rather than
  // guessed.
  if (reader.ok() && (major < 1 || major > 3 || minor != 0)) {
    return InputError(ErrorCode::kUnimplemented, input.path, kNpyMagic.size(),
                      ".npy version " + std::to_string(major) + "." + std::to_string(minor) +
                          " is unknown; versions 1.0 to 3.0 are supported");
  }
  // Versions 2 and 3 have a longer length field; version 3 also allows UTF-8 in the header, which
  // only the names of structured types use.
  const std::uint64_t length =
      major == 1 ? reader.ReadLe<std::uint16_t>() : reader.ReadLe<std::uint32_t>();
  if (reader.ok() && length > limits::kRecordHeaderBytesMax - reader.offset()) {
    return InputError(ErrorCode::kInvalidArgument, input.path, reader.offset(),
                      "a header of " + std::to_string(length) + " bytes exceeds " +
                          std::to_string(limits::kRecordHeaderBytesMax) +
                          " (kRecordHeaderBytesMax)");
  }
  const std::uint64_t text_offset = reader.offset();
  const std::span<const std::byte> text = reader.Take(static_cast<std::size_t>(length));
  if (!reader.ok()) {
    return InputError(ErrorCode::kDataLoss, input.path, input.start.size(),
                      "the file is truncated within its .npy header");
  }
  RecordHeader header;
  header.data_offset = text_offset + length;
  NpyHeaderParser parser(
      input.path, {reinterpret_cast<const char*>(text.data()), text.size()}, text_offset);
  FOREBAY_TRY(parser.Parse(header));
  FOREBAY_TRY(FitRecords(input, header));
  return header;
}

}  // namespace forebay::catalog
