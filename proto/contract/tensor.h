// Element types and field descriptions shared by catalogs, the wire and the client.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay {

// Persisted and sent by number; never renumber. All elements are little-endian.
enum class Dtype : std::uint8_t {
  kBytes = 0,  // opaque bytes of any length (a JPEG, a text, a protein record)
  kU8 = 1, kI8 = 2, kU16 = 3, kI16 = 4, kI32 = 5, kI64 = 6,
  kF16 = 7, kBf16 = 8, kF32 = 9, kF64 = 10,
};

// Bytes of one element (1 for kBytes).
std::uint32_t DtypeBytes(Dtype dtype);
std::string_view DtypeName(Dtype dtype);                   // "u8", "bf16", "bytes", ...
Result<Dtype> ParseDtype(std::string_view name);           // inverse of DtypeName
Result<Dtype> DtypeFromNumber(std::uint64_t number);       // refuses unknown numbers

// Where a field's bytes come from.
enum class FieldSource : std::uint8_t {
  kExtent = 0,    // a byte range of an object
  kConstant = 1,  // a number held by the catalog (a class folder's index)
};

// One field of every sample of a data set. A field of fixed size has a shape (elements, row
// major; an empty shape with a dtype other than kBytes is a scalar). A field of variable size is
// kBytes with an empty shape. `big_endian` says that the elements are stored in big-endian order
// (IDX): the service delivers them as stored, and the client converts them on request.
struct FieldSpec {
  std::string name;
  Dtype dtype = Dtype::kBytes;
  FieldSource source = FieldSource::kExtent;
  bool big_endian = false;
  std::vector<std::uint64_t> shape;

  bool is_fixed() const { return dtype != Dtype::kBytes || !shape.empty(); }
  // Bytes per sample of a field of fixed size; kOutOfRange if the product exceeds 2^40.
  Result<std::uint64_t> BytesPerSample() const;
};

}  // namespace forebay
