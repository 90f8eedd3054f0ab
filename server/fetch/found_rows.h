// FoundRows: the rows that another node has asked for, where they lie in this node's memory. They
// are in extents in RAM, or in memory that was read or decoded to for this request. A transport
// sends them from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "server/tier/extent_cache.h"

namespace forebay::fetch {

// Does not change once it was handed to whoever sends the rows.
class FoundRows {
 public:
  explicit FoundRows(std::size_t count) : rows_(count) { runs_.reserve(count); }
  std::size_t count() const { return rows_.size(); }
  // Says why this row cannot be given. Not set if it can be. The other rows can be given all the
  // same.
  const std::optional<Error>& error(std::size_t row) const { return rows_[row].error; }
  std::uint64_t bytes(std::size_t row) const { return rows_[row].bytes; }
  // The bytes of a row, which lie in several places if its sample lies in several extents.
  std::span<const std::span<const std::byte>> runs(std::size_t row) const {
    return std::span(runs_).subspan(rows_[row].first_run, rows_[row].run_count);
  }

  // --- for whoever finds the rows -----------------------------------------------------------
  void SetError(std::size_t row, Error error) { rows_[row].error = std::move(error); }
  void SetBytes(std::size_t row, std::uint64_t bytes) { rows_[row].bytes = bytes; }
  // The next bytes of a row. All runs of a row are added before those of the next one.
  void AddRun(std::size_t row, std::span<const std::byte> bytes) {
    if (rows_[row].run_count == 0) rows_[row].first_run = runs_.size();
    runs_.push_back(bytes);
    ++rows_[row].run_count;
  }
  // What runs refer to stays as long as this object: an extent in RAM, or other memory.
  void Pin(tier::ExtentRef extent) { pins_.push_back(std::move(extent)); }
  void Keep(std::shared_ptr<const void> memory) { kept_.push_back(std::move(memory)); }

 private:
  struct Entry {
    std::uint64_t bytes = 0;
    std::size_t first_run = 0;
    std::size_t run_count = 0;
    std::optional<Error> error;
  };
  std::vector<Entry> rows_;
  std::vector<std::span<const std::byte>> runs_;
  std::vector<tier::ExtentRef> pins_;
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace forebay::fetch
