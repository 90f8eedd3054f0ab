// SampleRecords: the samples that a scan has seen so far, in a compact form (9 bytes per field, 3
// and the key per sample). The records become the pages of the catalog at the end of the scan,
// because the width of a page's entries is known only when every field name has been seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

struct SampleField {
  std::uint8_t field = 0;    // number in the order in which the scan found the fields
  std::uint64_t offset = 0;  // in the object
  std::uint64_t length = 0;
};

struct SampleRecord {
  std::string key;
  std::vector<SampleField> fields;
};

// The sample page and the key page of one extent.
struct SamplePages {
  std::vector<std::byte> entries;
  std::vector<std::byte> keys;
};

// Hash of a key. It is used only within this process and never stored.
std::uint64_t KeyHash(std::string_view key);

// Consecutive records, by their places in a table.
struct RecordRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Append-only, in a TableSpool. Not thread-safe. Unusable after an error.
class SampleRecords {
 public:
  explicit SampleRecords(const BuildScratch& scratch) : spool_(scratch) {}

  // Returns the record's place. Offsets are stored relative to `extent_start`; the caller has
  // checked that they fit 32 bits.
  Result<std::uint64_t> Append(const SampleRecord& record, std::uint64_t extent_start);
  // Appends all records of another table. Returns their places here.
  Result<RecordRange> AppendAll(const SampleRecords& others);
  // Returns the key of the record at `place`, which Append returned.
  Result<std::string> KeyAt(std::uint64_t place) const;
  std::uint64_t bytes() const { return spool_.size(); }
  // Calls `visit` with the bytes of the records of `range` in order, in pieces of at most 1 MiB.
  Status ForEachPiece(const RecordRange& range,
                      const std::function<Status(std::span<const std::byte>)>& visit) const;
  // Checks the record that begins at the next byte of `reader`, and appends it. kDataLoss: it is no
  // record, has no fields or one twice, or has a field other than the first `field_count`, or one
  // whose bytes lie beyond the first `bytes` of its extents.
  struct Bounds {
    std::size_t field_count = 0;
    std::uint64_t bytes = 0;
  };
  Status AppendChecked(SpoolReader& reader, const Bounds& bounds);

  // Reads the records of a range in order.
  class Reader {
   public:
    Reader(const SampleRecords& records, const RecordRange& range)
        : reader_(records.spool_, range.begin, range.end) {}
    // Returns the pages of the next `sample_count` samples, whose entries have `columns` fields.
    // Field k goes to column final_numbers[k].
    Result<SamplePages> ReadPages(std::uint32_t sample_count,
                                  std::span<const std::size_t> final_numbers,
                                  std::size_t columns);

   private:
    template <typename T>
    Result<T> TakeLe();

    SpoolReader reader_;
  };

 private:
  TableSpool spool_;
  std::vector<std::byte> row_;  // the record being appended
};

}  // namespace forebay::catalog
