// Encodes chunks on several threads and writes them in the order of the calls to Push.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/format/pack/field_statistics.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"

namespace forebay::compress {

// A record that is to be written: a chunk's samples, or keys.
struct PendingRecord {
  RecordType type = RecordType::kChunk;
  ChunkHead head;                    // a chunk's; checksums are computed here
  std::vector<std::uint32_t> lengths;  // of a variable field's samples
  std::vector<std::byte> raw;        // elements, byte strings, or the keys as they are written
  KeyEntry keys;                     // a key record's
};

// Owns the threads and the file it appends to. Not thread-safe.
class RecordQueue {
 public:
  RecordQueue(const PackSchema& schema, const ChunkOptions& options, unsigned threads,
              std::uint64_t identity, std::string path, UniqueFd file, std::uint64_t offset);

  // Makes Finish write statistics of all chunks. Call it before SetPresent and Push.
  void KeepStatistics() { keeps_statistics_ = true; }

  // Waits for the records that threads are encoding; those that no thread has begun are dropped.
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Says which records a resumed file holds already; Push skips them. `statistics` has one entry
  // for each chunk if statistics are kept.
  void SetPresent(const std::vector<ChunkEntry>& chunks, const std::vector<KeyEntry>& keys,
                  std::vector<FieldStatistics> statistics);

  // Adds a record; waits while the queue is full. Errors are those of any earlier record, and every
  // later call returns them; after the first one no thread begins another record. They include
  // kResourceExhausted if there is not enough memory to encode a chunk.
  Status Push(PendingRecord record);

  // Waits for all records, writes them, the statistics, the index and the footer, and syncs.
  Status Finish(std::uint64_t samples);

  int file() const { return file_.get(); }
  std::uint64_t offset() const { return offset_; }
  const PackIndex& index() const { return index_; }

 private:
  // Belongs to the thread that encodes it until `done` is set, then to the caller's thread, which
  // may delete it at once.
  struct Task {
    PendingRecord record;
    std::vector<std::byte> checksums, lengths;
    FieldStatistics statistics;
    // Encoding sets one of both.
    std::optional<Result<EncodedChunk>> encoded;
    std::exception_ptr thrown;
    bool done = false;  // guarded by mutex_

    bool failed() const { return thrown != nullptr || !*encoded; }
  };
  using ChunkKey = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint64_t>;

  std::size_t TaskCount() const FOREBAY_EXCLUDES(mutex_);
  void Encode(Task& task) const;
  void EncodeRecord(Task& task) const;
  Result<EncodedChunk> EncodeVerified(const PackField& field, const PendingRecord& record) const;
  Error ErrorOf(const Task& task) const;
  void RunThread(const std::stop_token& stop);
  Status WriteFront();
  Status WriteTask(Task& task);
  Status WriteStatisticsRecord(PackFooter& footer);
  Status Append(std::span<const std::byte> bytes);
  Status AppendRecord(RecordType type, std::span<const std::byte> added,
                      std::span<const std::byte> payload, RecordPrefix* written);

  const PackSchema& schema_;
  const ChunkOptions options_;
  const std::uint64_t identity_;
  const std::string path_;
  UniqueFd file_;
  std::uint64_t offset_;
  PackIndex index_;
  bool keeps_statistics_ = false;
  std::vector<FieldStatistics> statistics_;  // of the index's chunks, in the file's order
  std::set<ChunkKey> present_chunks_;
  std::uint64_t present_keys_ = 0;  // keys of so many samples are there
  Status failure_;                  // the first, in the order of the file

  mutable Mutex mutex_;  // also guards `done` of the tasks in the queue
  StoppableCondVar changed_;
  // In the order of the file. Only the writer adds and removes tasks.
  std::deque<std::unique_ptr<Task>> tasks_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t begun_ FOREBAY_GUARDED_BY(mutex_) = 0;   // tasks that a thread has taken
  // A task has failed: no thread begins another one.
  bool has_failed_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace forebay::compress
