// Encodes chunks on threads and appends records in the order of the calls. Tasks lie in a queue in
// that order; threads begin the next unbegun one, and the caller's thread writes the first one when
// it is done, which also bounds the queue. So the file is the same for any number of threads. Owned
// by PackWriter.
#include "compress/encode/pack/record_queue.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "compress/decode/chunk/chunk_decoder.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::compress {

RecordQueue::RecordQueue(const PackSchema& schema, const ChunkOptions& options, unsigned threads,
                         std::uint64_t identity, std::string path, UniqueFd file,
                         std::uint64_t offset)
    : schema_(schema),
      options_(options),
      identity_(identity),
      path_(std::move(path)),
      file_(std::move(file)),
      offset_(offset) {
  // One thread means the caller's own: Push then encodes at once and needs no queue.
  for (unsigned i = 0; threads > 1 && i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { RunThread(stop); });
  }
}

RecordQueue::~RecordQueue() {
  // All are asked to stop before any is joined, so they end at the same time and not one by one.
  for (std::jthread& thread : threads_) thread.request_stop();
  changed_.NotifyAll();
}

void RecordQueue::SetPresent(const std::vector<ChunkEntry>& chunks,
                             const std::vector<KeyEntry>& keys,
                             std::vector<FieldStatistics> statistics) {
  for (const ChunkEntry& entry : chunks) {
    present_chunks_.insert({entry.field, entry.first_sample, entry.tile, entry.part_offset});
  }
  // Key records follow one another, so the last one tells where the keys that are there end.
  if (!keys.empty()) present_keys_ = keys.back().first_sample + keys.back().sample_count;
  index_.chunks = chunks;
  index_.keys = keys;
  statistics_ = std::move(statistics);
}

Status RecordQueue::Push(PendingRecord record) {
  const bool present =
      record.type == RecordType::kKeys
          ? record.keys.first_sample < present_keys_
          : present_chunks_.contains({record.head.field, record.head.first_sample,
                                      record.head.tile, record.head.part_offset});
  // A killed run wrote this record. The chunks are cut the same way again, so its place is enough
  // to recognise it.
  if (present) return {};
  FOREBAY_TRY(failure_);
  auto task = std::make_unique<Task>();
  task->record = std::move(record);
  if (threads_.empty()) {
    Encode(*task);
    failure_ = WriteTask(*task);
    return failure_;
  }
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
  // One task under way and one that waits for each thread, so that no thread is idle while the
  // caller writes, and two more.
  const std::size_t full = 2 * threads_.size() + 2;
  while (TaskCount() >= full) FOREBAY_TRY(WriteFront());
  return {};
}

// Only the caller's thread adds and removes tasks, so the count is still right after the lock.
std::size_t RecordQueue::TaskCount() const {
  const MutexLock lock(mutex_);
  return tasks_.size();
}

void RecordQueue::RunThread(const std::stop_token& stop) {
  UniqueLock lock(mutex_);
  const auto has_task = [this]() FOREBAY_REQUIRES(mutex_) { return begun_ < tasks_.size(); };
  while (changed_.Wait(mutex_, stop, has_task)) {
    // Begin no task if the queue is being destroyed, or if an earlier task failed: its result would
    // never be written.
    if (stop.stop_requested() || has_failed_) return;
    // The task is owned by a pointer, so it stays where it is when the queue changes. The caller
    // does not remove it before it is done.
    Task& task = *tasks_[begun_++];
    // Encoding takes milliseconds and touches only this task.
    lock.Unlock();
    Encode(task);
    lock.Lock();
    has_failed_ = has_failed_ || task.failed();
    // The last use of the task: from here the caller's thread may delete it when the lock is free.
    task.done = true;
    changed_.NotifyAll();
  }
}

// Keeps an exception, which would end the process if it left the thread. If memory has run out
// there may be none for a message either, so the writing thread makes the message (ErrorOf).
void RecordQueue::Encode(Task& task) const {
  try {
    EncodeRecord(task);
  } catch (const std::exception&) {
    task.thrown = std::current_exception();
  }
}

Error RecordQueue::ErrorOf(const Task& task) const {
  if (task.thrown == nullptr) return task.encoded->error();
  const std::string where =
      " encode a chunk of field " + schema_.fields[task.record.head.field].name;
  try {
    std::rethrow_exception(task.thrown);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kResourceExhausted,
                 path_ + ": not enough memory to" + where +
                     "; use fewer threads or smaller chunks, then resume");
  } catch (const std::exception& failed) {
    return Error(ErrorCode::kInternal, path_ + ": cannot" + where + ": " + failed.what());
  }
}

// Encodes and verifies a record, and takes checksums and statistics of what a reader will get.
// Reads no state that changes, so that it gives the same result in every thread.
void RecordQueue::EncodeRecord(Task& task) const {
  PendingRecord& record = task.record;
  Result<EncodedChunk> encoded = EncodedChunk{};
  ByteWriter checksums;
  ByteWriter lengths;
  FieldStatistics statistics;
  if (record.type == RecordType::kChunk) {
    const PackField& field = schema_.fields[record.head.field];
    if (!record.raw.empty()) encoded = EncodeVerified(field, record);
    // A lossy chunk decodes to other values than went in: checksums and statistics are of the
    // decoded ones, because those are what a reader can compare.
    std::span<const std::byte> decoded = record.raw;
    if (encoded.has_value() && !encoded->decoded.empty()) decoded = encoded->decoded;
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < record.head.sample_count; ++i) {
      const std::size_t length =
          field.variable() ? record.lengths[i] : decoded.size() / record.head.sample_count;
      if (field.variable()) lengths.Le(record.lengths[i]);
      checksums.Le(SampleChecksum(identity_, record.head.field, record.head.tile,
                                  record.head.first_sample + i, record.head.part_offset,
                                  decoded.subspan(at, length)));
      at += length;
    }
    if (keeps_statistics_) {
      ChunkHead head = record.head;
      head.lengths = lengths.bytes();
      statistics = MeasureChunk(field, head, decoded);
    }
    // The task may wait a while for its turn; its decoded samples are not needed any more.
    if (encoded.has_value()) encoded->decoded = {};
  }
  task.checksums = checksums.Release();
  task.lengths = lengths.Release();
  task.statistics = statistics;
  task.encoded = std::move(encoded);
}

// Encodes a chunk and makes sure that it decodes to its input. EncodeChunk verifies coded chunks
// itself; chunks of zstd or LZ4, and stored ones, are decoded and compared here.
Result<EncodedChunk> RecordQueue::EncodeVerified(const PackField& field,
                                                 const PendingRecord& record) const {
  ChunkOptions options = options_;
  options.bound = {.mode = static_cast<BoundMode>(field.bound.mode),
                   .absolute = field.bound.absolute,
                   .relative = field.bound.relative};
  const ChunkShape shape = field.variable()
                               ? BytesShape(record.raw.size())
                               : field.Shape(record.head.tile, record.head.sample_count);
  FOREBAY_ASSIGN(EncodedChunk encoded, EncodeChunk(shape, record.raw, options));
  if (encoded.codec == ChunkCodec::kCoded) return encoded;
  // Not zeroed: pages that the decoder never touches are never made.
  const std::size_t scratch_bytes = ChunkScratchBytes(shape);
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(record.raw.size());
  const std::span decoded(memory.get(), record.raw.size());
  const ChunkRange whole = ChunkRange::Whole(shape);
  FOREBAY_TRY(DecodeChunk(shape, encoded.codec, encoded.payload, whole,
                          StridedOutput::Dense(shape, whole, decoded),
                          std::span(scratch.get(), scratch_bytes)));
  if (!std::ranges::equal(decoded, record.raw)) {
    return Error(ErrorCode::kInternal, path_ + ": a chunk of field " + field.name +
                                           " does not decode to what was encoded");
  }
  return encoded;
}

// Waits for the first task and writes it. Threads begin tasks in order, so the first task has been
// begun, or will be, as long as no task has failed.
Status RecordQueue::WriteFront() {
  FOREBAY_TRY(failure_);
  std::unique_ptr<Task> task;
  {
    const MutexLock lock(mutex_);
    const auto is_done = [this]() FOREBAY_REQUIRES(mutex_) { return tasks_.front()->done; };
    changed_.Wait(mutex_, std::stop_token(), is_done);
    task = std::move(tasks_.front());
    tasks_.pop_front();
    // The front task had been begun, and begun_ counts from the front.
    --begun_;
  }
  failure_ = WriteTask(*task);
  return failure_;
}

Status RecordQueue::WriteTask(Task& task) {
  PendingRecord& record = task.record;
  if (task.failed()) return ErrorOf(task);
  if (record.type == RecordType::kKeys) {
    ByteWriter added;
    added.Le(record.keys.first_sample);
    added.Le(record.keys.sample_count);
    // Offsets are known only now, as records of other tasks came before this one.
    record.keys.offset = offset_;
    record.keys.payload_bytes = record.raw.size();
    RecordPrefix written;
    FOREBAY_TRY(AppendRecord(record.type, added.bytes(), record.raw, &written));
    record.keys.head_bytes = written.head_bytes;
    record.keys.head_checksum = written.head_checksum;
    index_.keys.push_back(record.keys);
    return {};
  }
  const EncodedChunk& encoded = **task.encoded;
  record.head.codec = encoded.codec;
  record.head.raw_bytes = record.raw.size();
  record.head.checksums = task.checksums;
  record.head.lengths = task.lengths;
  ChunkEntry entry{.field = record.head.field,
                   .tile = record.head.tile,
                   .first_sample = record.head.first_sample,
                   .sample_count = record.head.sample_count,
                   .offset = offset_,
                   .payload_bytes = encoded.payload.size(),
                   .part_offset = record.head.part_offset,
                   .sample_bytes = record.head.sample_bytes};
  RecordPrefix written;
  FOREBAY_TRY(AppendRecord(record.type, WriteChunkHead(record.head), encoded.payload, &written));
  entry.head_bytes = written.head_bytes;
  entry.head_checksum = written.head_checksum;
  index_.chunks.push_back(entry);
  if (keeps_statistics_) statistics_.push_back(task.statistics);
  return {};
}

Status RecordQueue::AppendRecord(RecordType type, std::span<const std::byte> added,
                                 std::span<const std::byte> payload, RecordPrefix* written) {
  std::vector<std::byte> record =
      WriteRecordHead(identity_, offset_, type, added, payload, schema_.aligned);
  FOREBAY_ASSIGN(const RecordPrefix prefix, ReadRecordPrefix(record));
  record.insert(record.end(), payload.begin(), payload.end());
  // Records begin at multiples of 8.
  record.resize((record.size() + 7) / 8 * 8);
  *written = prefix;
  return Append(record);
}

Status RecordQueue::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // With its own offset, so that a file that Resume has opened needs no seek.
    const ssize_t written = pwrite(file_.get(), bytes.data(), bytes.size(),
                                   static_cast<off_t>(offset_));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error::FromErrno(errno, path_ + ": writing");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset_ += static_cast<std::uint64_t>(written);
  }
  return {};
}

// Merges the chunks' statistics field by field, in the order of the index, and writes the record.
// The file has the chunks of one field in that order; only fields alternate.
Status RecordQueue::WriteStatisticsRecord(PackFooter& footer) {
  if (!keeps_statistics_) return {};
  FOREBAY_CHECK(statistics_.size() == index_.chunks.size());
  std::vector<StatisticsMerger> mergers(schema_.fields.size());
  for (std::size_t i = 0; i < statistics_.size(); ++i) {
    const std::uint32_t field = index_.chunks[i].field;
    mergers[field].Take(schema_.fields[field], statistics_[i]);
  }
  std::vector<FieldStatistics> fields;
  for (std::size_t field = 0; field < mergers.size(); ++field) {
    fields.push_back(mergers[field].Merged(schema_.fields[field]));
  }
  footer.statistics_offset = offset_;
  RecordPrefix written;
  FOREBAY_TRY(AppendRecord(RecordType::kStatistics, {}, WriteStatistics(fields), &written));
  footer.statistics_bytes = offset_ - footer.statistics_offset;
  return {};
}

Status RecordQueue::Finish(std::uint64_t samples) {
  FOREBAY_TRY(failure_);
  // The index describes all records, so it comes after the last of them.
  while (TaskCount() > 0) FOREBAY_TRY(WriteFront());
  index_.samples = samples;
  PackFooter footer{.samples = samples};
  FOREBAY_TRY(WriteStatisticsRecord(footer));
  // The index is sorted by field; the file has the chunks as they became full.
  std::ranges::stable_sort(index_.chunks, {}, &ChunkEntry::field);
  // Every reader makes this check. Made here too, it keeps a mistake of the writer out of a
  // finished file.
  FOREBAY_TRY(CheckPackIndex(schema_, index_));
  footer.index_offset = offset_;
  RecordPrefix written;
  const std::vector<std::byte> payload = WritePackIndex(index_);
  if (payload.size() > limits::kPackIndexBytesMax - kRecordPrefixBytes) {
    return Error(ErrorCode::kResourceExhausted,
                 path_ + ": too many chunks for one pack; write several or larger chunks");
  }
  FOREBAY_TRY(AppendRecord(RecordType::kIndex, {}, payload, &written));
  footer.index_bytes = offset_ - footer.index_offset;
  FOREBAY_TRY(Append(WritePackFooter(identity_, footer)));
  // The file is on the medium before it gets its name: a name never stands for a pack that a crash
  // can take away.
  if (fdatasync(file_.get()) != 0) return Error::FromErrno(errno, path_ + ": syncing");
  return {};
}

}  // namespace forebay::compress
