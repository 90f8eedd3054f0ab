// StreamSchema: the fields of a stream's data set, as the daemon described and this library
// checked them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <google/protobuf/repeated_ptr_field.h>

#include "forebay/v1/data.pb.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::internal {

// Immutable after Parse. `sample_bytes[i]` is fields[i]'s size in every sample, 0 where the
// size varies and for constants.
struct StreamSchema {
  std::vector<FieldSpec> fields;
  std::vector<std::uint64_t> sample_bytes;
};

using WireFields = google::protobuf::RepeatedPtrField<v1::Field>;

// kOutOfRange and kInvalidArgument name the field and the limit that it breaks.
Result<StreamSchema> ParseSchema(const WireFields& fields);

}  // namespace forebay::internal
