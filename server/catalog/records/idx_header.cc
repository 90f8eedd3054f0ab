// The IDX parser of record_header.h. A header is 4 bytes of magic, the third of which is the
// element type and the fourth the number of dimensions, then a big-endian u32 for each dimension.
// The first dimension counts the records. The bytes are untrusted.
#include <optional>
#include <string>

#include "proto/contract/limits.h"
#include "server/catalog/input_error.h"
#include "server/catalog/records/record_header.h"

namespace forebay::catalog {
namespace {

// The element types of IDX; nullopt for any other code.
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

// The callers compare each offset with the size of `bytes` first.
std::uint8_t ByteAt(std::span<const std::byte> bytes, std::size_t offset) {
  return std::to_integer<std::uint8_t>(bytes[offset]);
}

std::uint32_t LoadBigEndian32(std::span<const std::byte> bytes, std::size_t offset) {
  // Shifts and not a cast of the memory, which would depend on the byte order of this machine.
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | ByteAt(bytes, offset + i);
  return value;
}

}  // namespace

Result<RecordHeader> ParseIdxHeader(const HeaderInput& input) {
  const std::span<const std::byte> start = input.start;
  if (start.size() < 4) {
    return InputError(ErrorCode::kDataLoss, input.path, start.size(),
                      "the file is truncated within its IDX magic number");
  }
  // MNIST is published gzip-compressed. Say so, because "not an IDX file" would puzzle its users.
  if (ByteAt(start, 0) == 0x1F && ByteAt(start, 1) == 0x8B) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 0,
                      "the file is gzip-compressed; decompress it first");
  }
  if (ByteAt(start, 0) != 0 || ByteAt(start, 1) != 0) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 0, "not an IDX file");
  }
  const std::optional<Dtype> dtype = IdxDtype(ByteAt(start, 2));
  if (!dtype.has_value()) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 2,
                      "unknown IDX element type " + std::to_string(ByteAt(start, 2)));
  }
  // At most 255, so the header has at most 1,024 bytes, which kRecordHeaderBytesMax covers.
  // FitRecords refuses more dimensions than a field may have.
  const std::size_t dimensions = ByteAt(start, 3);
  if (dimensions == 0) {
    return InputError(ErrorCode::kInvalidArgument, input.path, 3,
                      "the IDX array has no dimensions, and so no samples");
  }
  RecordHeader header;
  header.data_offset = 4 + 4 * dimensions;
  if (start.size() < header.data_offset) {
    return InputError(ErrorCode::kDataLoss, input.path, start.size(),
                      "the file is truncated within its IDX header of " +
                          std::to_string(header.data_offset) + " bytes");
  }
  header.dtype = *dtype;
  header.big_endian = DtypeBytes(*dtype) > 1;  // a single byte has no byte order
  header.sample_count = LoadBigEndian32(start, 4);
  // Dimension 0 counts the records, so it is no part of a sample's shape.
  for (std::size_t i = 1; i < dimensions; ++i) {
    header.shape.push_back(LoadBigEndian32(start, 4 + 4 * i));
  }
  FOREBAY_TRY(FitRecords(input, header));
  return header;
}

}  // namespace forebay::catalog
