// LocalRows: answers another node's request for rows (RowSource). The rows come from the tiers of
// this node; extents that are on no tier are staged first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "server/fetch/fetcher.h"
#include "server/fetch/row_source.h"
#include "server/io/aligned_buffer.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/stage/stager.h"

namespace forebay::fetch {

// Rows where they lie in this node's memory: in extents in RAM, which are pinned while this object
// exists, or in memory of its own. Does not change once it was made.
class FoundRows {
 public:
  std::size_t count() const { return rows_.size(); }
  // Not set, or why this row cannot be given; the others can.
  const std::optional<Error>& error(std::size_t row) const { return rows_[row].error; }
  std::uint64_t bytes(std::size_t row) const { return rows_[row].bytes; }
  // The bytes of a row, which lie in several places if its sample lies in several extents.
  std::span<const std::span<const std::byte>> runs(std::size_t row) const {
    return std::span(runs_).subspan(rows_[row].first_run, rows_[row].run_count);
  }

 private:
  friend class LocalRows;
  struct Entry {
    std::uint64_t bytes = 0;
    std::size_t first_run = 0;
    std::size_t run_count = 0;
    std::optional<Error> error;
  };
  std::vector<Entry> rows_;
  std::vector<std::span<const std::byte>> runs_;
  std::vector<tier::ExtentRef> pins_;
  io::AlignedBuffer scratch_;  // of pieces that were read from SSD or the GFS
};

// The rows that another node asks for.
struct WantedRows {
  std::uint64_t fingerprint = 0;  // of the asking node's catalog
  std::vector<Row> rows;
  Need need = Need::kSamples;
  std::uint64_t bytes_max = ~std::uint64_t{0};  // of all rows, if there are several
};

// Thread-safe; everything passed in is borrowed, and outlives all requests.
class LocalRows {
 public:
  LocalRows(stage::Stager& stager, Fetcher& fetcher, io::Executor& executor, io::Clock& clock)
      : stager_(stager), fetcher_(fetcher), executor_(executor), clock_(clock) {}

  // Fills the rows, which must stay in place until `done`; each byte from SSD or the GFS is
  // verified. Starts staging the data set if it has not started. `done` is called once, from a
  // thread of the executor or of the stager. Errors are meant for another node
  // (stage::ErrorForOthers). kFailedPrecondition: this node has another catalog. kInvalidArgument:
  // there is no such row, or its memory has another length. kUnimplemented: the samples are packed,
  // and have to be decoded. kResourceExhausted: the rows take more than `bytes_max`.
  void Read(stage::Dataset& dataset, WantedRows wanted, RowSource::Done done);

  // As Read, without a copy: finds the rows where they lie. The memory of `rows` is not looked at,
  // because the catalog says how long a row is. A row that does not exist has an error of its own.
  using Found = std::function<void(Result<std::shared_ptr<const FoundRows>>)>;
  void Find(stage::Dataset& dataset, WantedRows wanted, Found done);

 private:
  struct Work;
  using WorkRef = std::shared_ptr<Work>;

  void Start(const WorkRef& work);
  void Advance(const WorkRef& work, io::IoQueue& queue);

  stage::Stager& stager_;
  Fetcher& fetcher_;
  io::Executor& executor_;
  io::Clock& clock_;
};

}  // namespace forebay::fetch
