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

// A parsed header: `sample_count` records of `record_bytes` each, from `data_offset` to the file's
// end.
struct RecordHeader {
  Dtype dtype = Dtype::kU8;
  bool big_endian = false;
  std::vector<std::uint64_t> shape;  // of one record; empty: a scalar
  std::uint64_t sample_count = 0;
  std::uint64_t data_offset = 0;
  std::uint64_t record_bytes = 0;
};

// The input of a parser. `start` is the beginning of the file: all of it, or at least
// limits::kRecordHeaderBytesMax. `path` names the file in errors.
struct HeaderInput {
  std::string_view path;
  std::uint64_t file_bytes = 0;
  std::span<const std::byte> start;
};

// Both parsers refuse a file whose size differs from what its header says, a file without records,
// records of no bytes, and more dimensions than limits::kDimensionCountMax. Errors: kDataLoss if
// the file is truncated, kInvalidArgument if it is malformed, kUnimplemented if Forebay cannot
// deliver it.

// IDX, the format of MNIST: the bytes 00 00, type, number of dimensions, then big-endian u32 sizes.
// Elements are big-endian.
Result<RecordHeader> ParseIdxHeader(const HeaderInput& input);
// NumPy's .npy, versions 1.0 to 3.0. Refuses object arrays, which need unpickling, and Fortran
// order of arrays with more than one dimension. "|b1" is delivered as u8.
Result<RecordHeader> ParseNpyHeader(const HeaderInput& input);

// Checks `header` against the file's size and fills record_bytes. Both parsers end with it; raw
// files, whose layout comes from the configuration, use it too.
Status FitRecords(const HeaderInput& input, RecordHeader& header);

}  // namespace forebay::catalog
