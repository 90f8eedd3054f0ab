// The IDX parser of record_header.h.
#include <optional>
#include <string>

#include "proto/contract/limits.h"
#include "server/catalog/input_error.h"
#include "server/catalog/records/record_header.h"

namespace forebay::catalog {
namespace {

std::optional<Dtype> IdxDtype(std::uint8_t code) {
  switch (code) {
    case 0x08: return Dtype::kU8;
    case 0x09: return Dtype::kI8;
    case 0x0B: return Dtype::kI16;
    case 0x0C: return Dtype::kI32;
    case 0x0D: return Dtype::kF32;
    case 0x0E: return Dtype::kF64;
    default: return std::nullopt;
  }
}

std::uint8_t ByteAt(std::span<const std::byte> bytes, std::size_t offset) {
  return std::to_integer<std::uint8_t>(bytes[offset]);
}

std::uint32_t LoadBigEndian32(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | ByteAt(bytes, offset + i);
  return value;
}

}  // namespace

Result<RecordHeader> ParseIdxHeader(const HeaderInput& input) {
  const std::span<const std::byte> start = input.start;
  if (start.size() < 4) {
    return InputError(ErrorCode::kDataLoss, input.path, start.size(), "truncated IDX magic");
  }
  if (ByteAt(start, 0) == 0x1F && ByteAt(start, 1) == 0x8B) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 0,
                      "gzip-compressed; decompress it first");
  }
  if (ByteAt(start, 0) != 0 || ByteAt(start, 1) != 0) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 0, "not an IDX file");
  }
  const std::optional<Dtype> dtype = IdxDtype(ByteAt(start, 2));
  if (!dtype.has_value()) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 2,
                      "unknown IDX element type " + std::to_string(ByteAt(start, 2)));
  }
  const std::size_t dimensions = ByteAt(start, 3);
  if (dimensions == 0) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 3, "IDX array of no dimensions");
  }
  RecordHeader header;
  header.data_offset = 4 + 4 * dimensions;
  if (start.size() < header.data_offset) {
    return InputError(ErrorCode::kDataLoss, input.path, start.size(),
                      "truncated IDX header of " + std::to_string(header.data_offset) +
                          " bytes");
  }
  header.dtype = *dtype;
  header.big_endian = DtypeBytes(*dtype) > 1;
  header.sample_count = LoadBigEndian32(start, 4);
  for (std::size_t i = 1; i < dimensions; ++i) {
    header.shape.push_back(LoadBigEndian32(start, 4 + 4 * i));
  }
  FOREBAY_TRY(FitRecords(input, header));
  return header;
}

}  // namespace forebay::catalog
