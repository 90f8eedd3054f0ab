// The external merge sort of seen_keys.h. Archives whose keys fit in memory, nearly all, are sorted
// in place and touch no file. Otherwise a heap over all runs gives the keys in the order of hash
// and offset; only the keys of the current hash are kept.
#include "server/catalog/tar/seen_keys.h"

#include <algorithm>
#include <span>
#include <string>

namespace forebay::catalog {
namespace {

constexpr std::size_t kRunBufferKeys = 4096;  // 96 KiB of each run are in memory during a merge

}  // namespace

// Reads one sorted run of the spool.
class SeenKeys::Run {
 public:
  Run(const TableSpool& spool, std::uint64_t begin, std::uint64_t end)
      : spool_(&spool), at_(begin), end_(end) {}

  // Goes to the next key. Returns false at the end of the run.
  Result<bool> Next() {
    if (++index_ < keys_.size()) return true;
    const auto left = static_cast<std::size_t>((end_ - at_) / sizeof(SeenKey));
    if (left == 0) return false;
    keys_.resize(std::min(left, kRunBufferKeys));
    const auto bytes = std::as_writable_bytes(std::span(keys_));
    FOREBAY_TRY(spool_->Read(at_, bytes));
    at_ += bytes.size();
    index_ = 0;
    return true;
  }
  const SeenKey& key() const { return keys_[index_]; }

 private:
  const TableSpool* spool_;
  std::uint64_t at_;
  std::uint64_t end_;
  std::vector<SeenKey> keys_;
  std::size_t index_ = 0;
};

// Takes keys in the order of hash and offset, and shows each with all earlier ones of its hash:
// keys that differ may lie between two that are equal.
class SeenKeys::EqualHashes {
 public:
  explicit EqualHashes(const PairVisitor& visit) : visit_(visit) {}

  Status Add(const SeenKey& key) {
    if (!group_.empty() && group_.front().hash != key.hash) group_.clear();
    for (const SeenKey& before : group_) FOREBAY_TRY(visit_(before, key));
    if (group_.size() == kEqualHashesMax) {
      return Error(ErrorCode::kResourceExhausted,
                   "more than " + std::to_string(kEqualHashesMax) +
                       " different keys have one hash; rename samples of the archive");
    }
    group_.push_back(key);
    return {};
  }

 private:
  const PairVisitor& visit_;
  std::vector<SeenKey> group_;
};

SeenKeys::SeenKeys(const BuildScratch& scratch)
    // At least 1, so that a share of memory below one key, as tests set it, still makes progress.
    : keys_max_(std::max<std::size_t>(1, scratch.table_bytes / sizeof(SeenKey))),
      // keys_ is this table's share of memory, so its spool writes to the file at once.
      spool_({.directory = scratch.directory, .table_bytes = 0}) {}

Status SeenKeys::Add(const SeenKey& key) {
  if (keys_.size() >= keys_max_) FOREBAY_TRY(SpillRun());
  keys_.push_back(key);
  return {};
}

Status SeenKeys::SpillRun() {
  // The order of equal hashes is that of offsets, so `before` in the visitor's arguments is the
  // earlier sample.
  std::sort(keys_.begin(), keys_.end());
  run_starts_.push_back(spool_.size());
  FOREBAY_TRY(spool_.Append(std::as_bytes(std::span(keys_))));
  keys_.clear();
  return {};
}

Status SeenKeys::TakeEqualHashes(const PairVisitor& visit) {
  EqualHashes equal(visit);
  if (!run_starts_.empty()) {
    // The keys in memory become the last run, so that one merge sees all keys.
    FOREBAY_TRY(SpillRun());
    FOREBAY_TRY(MergeRuns(equal));
  } else {
    std::sort(keys_.begin(), keys_.end());
    for (const SeenKey& key : keys_) FOREBAY_TRY(equal.Add(key));
  }
  keys_.clear();
  run_starts_.clear();
  spool_.Clear();
  return {};
}

Status SeenKeys::MergeRuns(EqualHashes& equal) {
  // Memory: one buffer per run. An archive of 10^8 keys has about 36 runs of 64 MiB.
  std::vector<Run> runs;
  for (std::size_t i = 0; i < run_starts_.size(); ++i) {
    const bool is_last = i + 1 == run_starts_.size();
    runs.emplace_back(spool_, run_starts_[i], is_last ? spool_.size() : run_starts_[i + 1]);
  }
  std::vector<Run*> heap;  // by the run's next key, the smallest first
  const auto is_later = [](const Run* a, const Run* b) { return b->key() < a->key(); };
  for (Run& run : runs) {
    FOREBAY_ASSIGN(const bool has_key, run.Next());
    if (has_key) heap.push_back(&run);
  }
  std::make_heap(heap.begin(), heap.end(), is_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), is_later);
    // pop_heap has moved the run with the smallest key to the back. The run advances there and
    // returns to the heap with its next key, or leaves it.
    const SeenKey key = heap.back()->key();
    FOREBAY_ASSIGN(const bool has_key, heap.back()->Next());
    if (has_key) {
      std::push_heap(heap.begin(), heap.end(), is_later);
    } else {
      heap.pop_back();
    }
    FOREBAY_TRY(equal.Add(key));
  }
  return {};
}

}  // namespace forebay::catalog
