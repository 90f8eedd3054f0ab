// The segment store's manifest (docs/segment.md): which segments are published. It is an
// append-only log of fixed-size records. The parser is a pure function; ManifestLog does the I/O.
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

// Stored by number: never renumber.
enum class ManifestKind : std::uint32_t { kPublish = 1, kRemove = 2 };

struct ManifestRecord {
  ManifestKind kind = ManifestKind::kPublish;
  ExtentKey key;
  SegmentShape shape;
};

inline constexpr std::uint32_t kManifestVersion = 1;
inline constexpr std::size_t kManifestRecordBytes = 64;  // the header has the same size

// Compaction keeps a manifest far below this limit. If compaction keeps failing, no record is
// appended beyond it.
inline constexpr std::size_t kManifestRecordsMax = 3 * limits::kSegmentsPerStoreMax + 4096;

struct ParsedManifest {
  std::uint64_t generation = 0;
  std::vector<ManifestRecord> records;  // of both kinds, in the order of the file
  std::uint64_t dropped_records = 0;    // the first damaged record and all that follow it
  bool has_torn_tail = false;           // only the last record is incomplete or damaged
};

// kFailedPrecondition: another format version wrote it. Any other fault in the bytes is damage: the
// records after it are dropped, and the result says so.
Result<ParsedManifest> ParseManifest(std::span<const std::byte> bytes);
std::vector<std::byte> EncodeManifestHeader(std::uint64_t generation);
// `offset`: the record's offset in the file. It goes into the record's checksum, so that a record
// is valid only at its own offset.
std::vector<std::byte> EncodeManifestRecord(const ManifestRecord& record,
                                            std::uint64_t generation, std::uint64_t offset);

// Not thread-safe; borrows the directory. Every call blocks on the device. Queues must be idle.
class ManifestLog {
 public:
  explicit ManifestLog(io::Directory& directory) : directory_(directory) {}

  // Reads the manifest; a missing file is an empty manifest. Call Rewrite before the first Append.
  Result<ParsedManifest> Load(io::IoQueue& queue);

  // Replaces the manifest by one that publishes `live` (write to a temporary file, fdatasync,
  // rename, fsync of the directory). After an error either the old or the new manifest is there,
  // complete; see needs_rewrite.
  Status Rewrite(io::IoQueue& queue, std::span<const ManifestRecord> live);

  // Appends a record and syncs. After an error it is unknown whether a restart would read the
  // record, and Append fails with kFailedPrecondition until Rewrite has succeeded: a sync that
  // failed is never repeated on the same file.
  Status Append(io::IoQueue& queue, const ManifestRecord& record);

  // Whether Append would fail: nothing was written yet, or the last write failed.
  bool needs_rewrite() const { return file_ == nullptr; }
  std::uint64_t record_count() const { return record_count_; }

 private:
  io::Directory& directory_;
  std::unique_ptr<io::File> file_;  // the manifest, if Append is allowed; else null
  std::uint64_t generation_ = 0;       // the last one that was used, also by a rewrite that failed
  std::uint64_t file_generation_ = 0;  // of file_
  std::uint64_t record_count_ = 0;
};

}  // namespace forebay::tier
