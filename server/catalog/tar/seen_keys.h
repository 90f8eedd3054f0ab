// SeenKeys: the keys of one archive, for finding one that comes back after another.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

struct SeenKey {
  std::uint64_t hash = 0;
  std::uint64_t record_at = 0;  // in SampleRecords
  std::uint64_t offset = 0;     // in the archive
  bool operator<(const SeenKey& other) const {
    return std::pair(hash, offset) < std::pair(other.hash, other.offset);
  }
};

// Keeps as many keys in memory as scratch.table_bytes holds; sorted runs of them go to a spool
// and are merged to find twins. Not thread-safe; of no use after an error.
class SeenKeys {
 public:
  explicit SeenKeys(const BuildScratch& scratch);

  Status Add(const SeenKey& key);
  // Calls `visit` with every two keys of one hash that follow one another by offset, in the
  // order of hashes; then forgets all keys.
  using PairVisitor = std::function<Status(const SeenKey& before, const SeenKey& twin)>;
  Status TakeTwins(const PairVisitor& visit);

 private:
  class Run;
  Status SpillRun();
  Status MergeRuns(const PairVisitor& visit);

  std::size_t keys_max_;
  std::vector<SeenKey> keys_;
  TableSpool spool_;                       // sorted runs, one after another
  std::vector<std::uint64_t> run_starts_;  // in the spool
};

}  // namespace forebay::catalog
