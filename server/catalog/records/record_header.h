// Headers of files that hold an array of fixed-size records: IDX and .npy. Pure parsers over
// untrusted bytes; nothing is evaluated or unpickled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::catalog {

// What a header says: `sample_count` records of `record_bytes` from `data_offset` on.
struct RecordHeader {
  Dtype dtype = Dtype::kU8;
  bool big_endian = false;
  std::vector<std::uint64_t> shape;  // of one record; empty: a scalar
  std::uint64_t sample_count = 0;
  std::uint64_t data_offset = 0;
  std::uint64_t record_bytes = 0;
};

// Where the header stands: `start` is the beginning of the file (all of it, or at least
// limits::kRecordHeaderBytesMax), `path` names it in errors.
struct HeaderInput {
  std::string_view path;
  std::uint64_t file_bytes = 0;
  std::span<const std::byte> start;
};

// Both refuse a file whose size is not exactly what its header says, no records, records of no
// bytes, and more dimensions than limits::kDimensionCountMax. kDataLoss: truncated;
// kInvalidArgument: malformed; kUnimplemented: valid, but not something Forebay delivers.

// IDX, the MNIST family: 00 00 type dimensions, then big-endian u32 sizes; elements are
// big-endian.
Result<RecordHeader> ParseIdxHeader(const HeaderInput& input);
// NumPy's .npy, versions 1.0 to 3.0. Object arrays are refused (they need unpickling), Fortran
// order too unless the array has one dimension. "|b1" is delivered as u8.
Result<RecordHeader> ParseNpyHeader(const HeaderInput& input);

// The check both end with; also for headers from elsewhere. Fills record_bytes.
Status FitRecords(const HeaderInput& input, RecordHeader& header);

}  // namespace forebay::catalog
