// The .npy parser of record_header.h: a recursive-descent reader of exactly the dict literal
// that NumPy writes, {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }.
#include <array>
#include <optional>
#include <string>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/limits.h"
#include "server/catalog/input_error.h"
#include "server/catalog/records/record_header.h"

namespace forebay::catalog {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kDimensionsParsedMax = 32;  // NumPy's own bound

struct NpyDtype {
  std::string_view code;  // without the byte-order character
  Dtype dtype;
};
constexpr std::array<NpyDtype, 10> kNpyDtypes = {{{"u1", Dtype::kU8}, {"b1", Dtype::kU8},
                                                  {"i1", Dtype::kI8}, {"u2", Dtype::kU16},
                                                  {"i2", Dtype::kI16}, {"i4", Dtype::kI32},
                                                  {"i8", Dtype::kI64}, {"f2", Dtype::kF16},
                                                  {"f4", Dtype::kF32}, {"f8", Dtype::kF64}}};

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
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  // Consumes `token` after spaces, if it is there.
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

Result<std::string_view> NpyHeaderParser::ParseQuoted() {
  SkipSpaces();
  if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
    return Malformed("expected a quoted string");
  }
  const std::size_t end = text_.find(text_[at_], at_ + 1);
  if (end == std::string_view::npos) return Malformed("unterminated string");
  const std::string_view quoted = text_.substr(at_ + 1, end - at_ - 1);
  if (quoted.find('\\') != std::string_view::npos) return Malformed("escape in a string");
  at_ = end + 1;
  return quoted;
}

Status NpyHeaderParser::ParseDescr(RecordHeader& header) {
  SkipSpaces();
  if (has_descr_) return Malformed("'descr' is given twice");
  if (at_ < text_.size() && text_[at_] == '[') {
    return Malformed("structured element types are not supported", ErrorCode::kUnimplemented);
  }
  const std::size_t start = at_;
  FOREBAY_ASSIGN(const std::string_view descr, ParseQuoted());
  has_descr_ = true;
  const std::size_t end = at_;
  at_ = start;  // errors below point at the type
  if (descr.find('O') != std::string_view::npos) {
    return Malformed("object arrays hold pickled code and are never loaded",
                     ErrorCode::kUnimplemented);
  }
  const char order = descr.empty() ? '\0' : descr.front();
  if (order != '<' && order != '>' && order != '|' && order != '=') {
    return Malformed("malformed element type " + Quoted(descr));
  }
  for (const NpyDtype& known : kNpyDtypes) {
    if (known.code != descr.substr(1)) continue;
    const bool is_single_byte = DtypeBytes(known.dtype) == 1;
    if (order == '|' && !is_single_byte) return Malformed("no byte order in " + Quoted(descr));
    header.dtype = known.dtype;
    header.big_endian = order == '>' && !is_single_byte;
    at_ = end;
    return {};
  }
  return Malformed("element type " + Quoted(descr) + " is not supported",
                   ErrorCode::kUnimplemented);
}

Status NpyHeaderParser::ParseShape() {
  if (shape_.has_value()) return Malformed("'shape' is given twice");
  if (!Accept("(")) return Malformed("expected a tuple");
  shape_.emplace();
  while (!Accept(")")) {
    if (shape_->size() >= kDimensionsParsedMax) return Malformed("too many dimensions");
    SkipSpaces();
    std::uint64_t value = 0;
    const std::size_t first_digit = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (value > (~std::uint64_t{0} - digit) / 10) return Malformed("dimension overflows");
      value = value * 10 + digit;
    }
    if (at_ == first_digit) return Malformed("expected a dimension");
    // Python 2 wrote long integers with a suffix.
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    shape_->push_back(value);
    if (Accept(",")) continue;
    if (shape_->size() < 2 || !Accept(")")) return Malformed("expected ',' or ')'");
    break;
  }
  return {};
}

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
  while (!Accept("}")) {
    FOREBAY_TRY(ParseEntry(header));
    if (Accept(",")) continue;
    if (!Accept("}")) return Malformed("expected ',' or '}'");
    break;
  }
  SkipSpaces();
  if (at_ != text_.size()) return Malformed("bytes after the dict literal");
  if (!has_descr_ || !fortran_order_.has_value() || !shape_.has_value()) {
    return Malformed("'descr', 'fortran_order' or 'shape' is missing");
  }
  if (shape_->empty()) {
    return Malformed("a zero-dimensional array holds no samples", ErrorCode::kUnimplemented);
  }
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
                      "truncated .npy magic");
  }
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), magic.size()) != kNpyMagic) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 0, "not an .npy file");
  }
  const auto major = reader.ReadLe<std::uint8_t>();
  const auto minor = reader.ReadLe<std::uint8_t>();
  if (reader.ok() && (major < 1 || major > 3 || minor != 0)) {
    return InputError(ErrorCode::kUnimplemented, input.path, kNpyMagic.size(),
                      ".npy version " + std::to_string(major) + "." + std::to_string(minor) +
                          " is unknown");
  }
  const std::uint64_t length =
      major == 1 ? reader.ReadLe<std::uint16_t>() : reader.ReadLe<std::uint32_t>();
  if (reader.ok() && length > limits::kRecordHeaderBytesMax - reader.offset()) {
    return InputError(ErrorCode::kInvalidArgument, input.path, reader.offset(),
                      "header of " + std::to_string(length) + " bytes exceeds " +
                          std::to_string(limits::kRecordHeaderBytesMax) +
                          " (kRecordHeaderBytesMax)");
  }
  const std::uint64_t text_offset = reader.offset();
  const std::span<const std::byte> text = reader.Take(static_cast<std::size_t>(length));
  if (!reader.ok()) {
    return InputError(ErrorCode::kDataLoss, input.path, input.start.size(),
                      "truncated .npy header");
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
