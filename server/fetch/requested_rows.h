// Checks of the rows that another node asks for, which all finders of rows share. A request
// comes from outside, so each number is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/fetch/row_source.h"

namespace forebay::fetch {

// Whether the catalog has this field of this sample, and it is no constant.
inline bool NamesField(const catalog::Catalog& catalog, const Row& row) {
  return row.sample.value() < catalog.sample_count() &&
         row.field.value() < catalog.fields().size() &&
         catalog.fields()[row.field.value()].source == FieldSource::kExtent;
}

// Whether the row is the value of such a field, and no chunk.
inline bool IsRowOf(const catalog::Catalog& catalog, const Row& row) {
  return row.chunk == 0 && NamesField(catalog, row);
}

inline Error NoSuchRow(const catalog::Catalog& catalog, const Row& row) {
  const std::string chunk = row.chunk == 0 ? "" : fmt::format("chunk {} of ", row.chunk);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("data set '{}' has no {}field {} of sample {}", catalog.name(), chunk,
                           row.field.value(), row.sample.value()));
}

// Counts the bytes of the rows of a request so far.
class RowBytes {
 public:
  RowBytes(std::size_t rows, std::uint64_t bytes_max) : rows_(rows), bytes_max_(bytes_max) {}
  // kResourceExhausted: with this row they are more than the limit. A single row may be longer: its
  // length was admitted when the data set was catalogued.
  Status Add(std::uint64_t bytes) {
    if (rows_ > 1 && bytes > bytes_max_ - bytes_) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("the {} rows asked for take more than {} bytes", rows_,
                               bytes_max_));
    }
    bytes_ += bytes;
    return {};
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const std::size_t rows_;
  const std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
};

}  // namespace forebay::fetch
