// SeenKeys: finds keys that occur twice in one archive, in bounded memory. TarObjectScanner
// adds every sample's key and asks at the end of the archive.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

struct SeenKey {
  std::uint64_t hash = 0;
  std::uint64_t record_at = 0;  // place of the sample's record, for CatalogPart::KeyAt
  std::uint64_t offset = 0;     // of the sample's first header, in the archive
  bool operator<(const SeenKey& other) const {
    return std::pair(hash, offset) < std::pair(other.hash, other.offset);
  }
};

// An external merge sort: memory holds as many keys as fit in scratch.table_bytes; when it is full,
// they go to a spool as a sorted run. Merging the runs brings equal hashes next to each other. Not
// thread-safe. Unusable after an error.
class SeenKeys {
 public:
  explicit SeenKeys(const BuildScratch& scratch);

  Status Add(const SeenKey& key);
  // Calls `visit` with every two keys that have the same hash, `before` at the smaller offset, in
  // the order of hashes; then clears all keys. Equal hashes need not mean equal keys: `visit`
  // compares the keys, and returns an error for equal ones. kResourceExhausted if more than
  // kEqualHashesMax keys have one hash, which only happens in an archive that was made to collide.
  using PairVisitor = std::function<Status(const SeenKey& before, const SeenKey& after)>;
  Status TakeEqualHashes(const PairVisitor& visit);

  static constexpr std::size_t kEqualHashesMax = 64;

 private:
  class Run;
  class EqualHashes;
  Status SpillRun();
  Status MergeRuns(EqualHashes& equal);

  std::size_t keys_max_;
  std::vector<SeenKey> keys_;
  TableSpool spool_;                       // sorted runs, one after another
  std::vector<std::uint64_t> run_starts_;  // in the spool
};

}  // namespace forebay::catalog
