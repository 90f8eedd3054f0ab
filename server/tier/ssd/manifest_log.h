// The segment store's manifest (docs/segment.md): which segments are published. An append-only
// log; the parser is a pure function, ManifestLog does the I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_key.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::tier {

// Persisted by number.
enum class ManifestKind : std::uint32_t { kPublish = 1, kRemove = 2 };

struct ManifestRecord {
  ManifestKind kind = ManifestKind::kPublish;
  ExtentKey key;
  SegmentShape shape;
};

inline constexpr std::uint32_t kManifestVersion = 1;
inline constexpr std::size_t kManifestRecordBytes = 64;  // the header has the same size

// Compaction keeps a manifest far below this; where it keeps failing, appends stop here.
inline constexpr std::size_t kManifestRecordsMax = 3 * limits::kSegmentsPerStoreMax + 4096;

struct ParsedManifest {
  std::uint64_t generation = 0;
  std::vector<ManifestRecord> records;  // of both kinds, as written
  std::uint64_t dropped_records = 0;    // damaged, and whatever follows the first such
  bool has_torn_tail = false;           // the last record alone is incomplete or damaged
};

// kFailedPrecondition where another format version wrote it; anything else that is wrong with
// the bytes is damage, which costs records and is reported in the result.
Result<ParsedManifest> ParseManifest(std::span<const std::byte> bytes);
std::vector<std::byte> EncodeManifestHeader(std::uint64_t generation);
// `offset` is where in the file the record goes: a record is valid in its own place only.
std::vector<std::byte> EncodeManifestRecord(const ManifestRecord& record,
                                            std::uint64_t generation, std::uint64_t offset);

// Not thread-safe; borrows the directory. Every call blocks on the device. Queues must be idle.
class ManifestLog {
 public:
  explicit ManifestLog(io::Directory& directory) : directory_(directory) {}

  // Reads what is there; an absent manifest is an empty one. Appending needs a Rewrite first.
  Result<ParsedManifest> Load(io::IoQueue& queue);

  // Replaces the manifest with one that publishes `live`, by the publish rules. On failure
  // the old manifest or the new one is there, both whole; see needs_rewrite.
  Status Rewrite(io::IoQueue& queue, std::span<const ManifestRecord> live);

  // Adds a record and syncs. After a failure it is unknown whether a restart would see it, and
  // nothing can be appended (kFailedPrecondition) until a Rewrite settles that: a sync that
  // failed is never tried again on the same file.
  Status Append(io::IoQueue& queue, const ManifestRecord& record);

  bool needs_rewrite() const { return file_ == nullptr; }
  std::uint64_t record_count() const { return record_count_; }

 private:
  io::Directory& directory_;
  std::unique_ptr<io::File> file_;  // the manifest, where it may be appended to
  std::uint64_t generation_ = 0;
  std::uint64_t record_count_ = 0;
};

}  // namespace forebay::tier
