// The table of element types. The row of a type is its number, so a number that was checked against
// the table's size is an index.
#include "proto/contract/tensor.h"

#include <string>

namespace forebay {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  std::uint32_t bytes;
};

constexpr std::array<DtypeRow, 11> kDtypes = {{
    {Dtype::kBytes, "bytes", 1}, {Dtype::kU8, "u8", 1},   {Dtype::kI8, "i8", 1},
    {Dtype::kU16, "u16", 2},     {Dtype::kI16, "i16", 2}, {Dtype::kI32, "i32", 4},
    {Dtype::kI64, "i64", 8},     {Dtype::kF16, "f16", 2}, {Dtype::kBf16, "bf16", 2},
    {Dtype::kF32, "f32", 4},     {Dtype::kF64, "f64", 8},
}};

}  // namespace

std::uint32_t DtypeBytes(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].bytes; }

std::string_view DtypeName(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }

Result<Dtype> ParseDtype(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return Error(ErrorCode::kInvalidArgument,
               "unknown element type '" + std::string(name) +
                   "' (one of bytes, u8, i8, u16, i16, i32, i64, f16, bf16, f32, f64)");
}

Result<Dtype> DtypeFromNumber(std::uint64_t number) {
  if (number >= kDtypes.size()) {
    return Error(ErrorCode::kInvalidArgument, "unknown element type " + std::to_string(number));
  }
  return static_cast<Dtype>(number);
}

Result<std::uint64_t> FieldSpec::BytesPerSample() const {
  // Shapes come from headers and configuration. Division before each multiplication keeps the
  // product from wrapping; once it is 0, it stays 0.
  constexpr std::uint64_t kLimit = 1ULL << 40;
  std::uint64_t bytes = DtypeBytes(dtype);
  for (const std::uint64_t dimension : shape) {
    if (dimension != 0 && bytes > kLimit / dimension) {
      return Error(ErrorCode::kOutOfRange, "field '" + name + "' exceeds 2^40 bytes per sample");
    }
    bytes *= dimension;
  }
  return bytes;
}

}  // namespace forebay
