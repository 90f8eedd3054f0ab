// Checks the fields that the daemon describes, once for each call: batches are decoded against the
// result, so sizes in it are within limits and need no further checks.
#include "client/stream/stream_schema.h"

#include <utility>

#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

Result<FieldSpec> ParseField(const v1::Field& wire) {
  if (wire.name().empty() || wire.name().size() > limits::kNameBytesMax) {
    return Error(ErrorCode::kOutOfRange, "the name of a field exceeds kNameBytesMax or is empty");
  }
  if (wire.shape_size() > static_cast<int>(limits::kDimensionCountMax)) {
    return Error(ErrorCode::kOutOfRange,
                 "field '" + wire.name() + "' has more dimensions than kDimensionCountMax");
  }
  // The name of a type that this version does not know is an error: its size could not be checked.
  FieldSpec field;
  field.name = wire.name();
  FOREBAY_ASSIGN(field.dtype, DtypeFromNumber(wire.dtype()));
  field.source = wire.constant() ? FieldSource::kConstant : FieldSource::kExtent;
  field.big_endian = wire.big_endian();
  field.shape.assign(wire.shape().begin(), wire.shape().end());
  return field;
}

}  // namespace

Result<StreamSchema> ParseSchema(const WireFields& fields) {
  if (fields.size() > static_cast<int>(limits::kFieldCountMax)) {
    return Error(ErrorCode::kOutOfRange, "more fields than kFieldCountMax");
  }
  StreamSchema schema;
  for (const v1::Field& wire : fields) {
    FOREBAY_ASSIGN(FieldSpec field, ParseField(wire));
    std::uint64_t bytes = 0;
    // BytesPerSample multiplies the dimensions with a check against overflow and the limit of a
    // sample. A size of 0 stands for a field whose samples differ in size, and for a constant,
    // which has no bytes.
    if (field.is_fixed() && field.source == FieldSource::kExtent) {
      FOREBAY_ASSIGN(bytes, field.BytesPerSample());
    }
    schema.fields.push_back(std::move(field));
    schema.sample_bytes.push_back(bytes);
  }
  return schema;
}

}  // namespace forebay::internal
