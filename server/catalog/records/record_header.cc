// The check with which every header ends: the records must fill the file exactly. A mismatch means
// a truncated copy or a wrong header, and either would deliver wrong bytes (docs/design.md, P1).
#include "server/catalog/records/record_header.h"

#include <string>

#include "proto/contract/limits.h"
#include "server/catalog/input_error.h"

namespace forebay::catalog {

Status FitRecords(const HeaderInput& input, RecordHeader& header) {
  const auto refuse = [&](ErrorCode code, const std::string& reason) {
    return InputError(code, input.path, header.data_offset, reason);
  };
  if (header.shape.size() > limits::kDimensionCountMax) {
    return refuse(ErrorCode::kUnimplemented,
                  "a record has " + std::to_string(header.shape.size()) +
                      " dimensions, the limit is " +
                      std::to_string(limits::kDimensionCountMax) + " (kDimensionCountMax)");
  }
  // BytesPerSample multiplies with a check of overflow.
  FieldSpec spec;
  spec.dtype = header.dtype;
  spec.shape = header.shape;
  const Result<std::uint64_t> bytes = spec.BytesPerSample();
  if (!bytes.has_value()) {
    return refuse(ErrorCode::kInvalidArgument, "a record exceeds 2^40 bytes");
  }
  // Neither number may be zero from here on: CutFixedPart divides by the size of a record and
  // subtracts 1 from the number of records.
  if (header.sample_count == 0) {
    return refuse(ErrorCode::kInvalidArgument, "the file has no records");
  }
  if (*bytes == 0) return refuse(ErrorCode::kInvalidArgument, "a record has zero bytes");
  header.record_bytes = *bytes;
  if (header.data_offset > input.file_bytes) {
    return refuse(ErrorCode::kDataLoss, "truncated: the file has " +
                                            std::to_string(input.file_bytes) + " bytes");
  }
  const std::uint64_t data_bytes = input.file_bytes - header.data_offset;
  const std::string said = std::to_string(header.sample_count) + " records of " +
                           std::to_string(*bytes) + " bytes are declared, the file has " +
                           std::to_string(data_bytes) + " bytes for them";
  // Division, because a count from outside could wrap a product. Once the count is known to fit,
  // the product below cannot wrap.
  if (header.sample_count > data_bytes / *bytes) {
    return refuse(ErrorCode::kDataLoss, "truncated: " + said);
  }
  if (header.sample_count * *bytes != data_bytes) {
    return refuse(ErrorCode::kInvalidArgument, "bytes after the last record: " + said);
  }
  return {};
}

}  // namespace forebay::catalog
