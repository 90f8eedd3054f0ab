// RawRows: finds the rows of a data set that is stored uncompressed. Rows in RAM are used where
// they lie; others are read from SSD or the GFS, and verified.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/fetch/found_rows.h"
#include "server/fetch/row_finder.h"
#include "server/fetch/row_source.h"
#include "server/fetch/sample_pieces.h"
#include "server/stage/dataset.h"

namespace forebay::fetch {

class RawRows final : public RowFinder {
 public:
  // `found` receives the rows, or the errors of those that do not exist. kResourceExhausted: the
  // rows take more than `bytes_max`, and there are several.
  static Result<std::unique_ptr<RowFinder>> Create(const stage::Dataset& dataset,
                                                   std::vector<Row> rows, std::uint64_t bytes_max,
                                                   std::shared_ptr<FoundRows> found);

  std::span<const ExtentId> extents() const override { return pieces_.extents(); }
  Result<bool> Find(const ReadMeans& means) override;

 private:
  RawRows(const stage::Dataset& dataset, std::vector<Row> rows, std::shared_ptr<FoundRows> found);
  Status Plan();
  Status Measure(std::uint64_t bytes_max);

  const stage::Dataset& dataset_;
  const std::shared_ptr<const catalog::Catalog> catalog_;
  const std::vector<Row> rows_;
  const std::shared_ptr<FoundRows> found_;
  SamplePieces pieces_;
  std::vector<std::size_t> sample_of_;  // of each row, in pieces_
};

}  // namespace forebay::fetch
