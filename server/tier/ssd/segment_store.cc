// FileSegmentStore keeps an index of all segments in memory, with a state for each: being written,
// published, being removed. An entry is made before the first file operation and erased after the
// last one, so that two threads never work on files of the same name. Two mutexes: manifest_mutex_
// is held during the manifest's I/O and orders its records; index_mutex_ is never held during I/O.
#include "server/tier/ssd/segment_store.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/aligned_buffer.h"
#include "server/tier/ssd/manifest_log.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kWriteBytes = limits::kMiB;
constexpr std::size_t kTransfersInFlightMax = 8;
// The manifest is compacted when it has more dead records than live ones, and at least these.
constexpr std::uint64_t kDeadRecordsMin = 256;

// Writes `bytes` at the start of `file`, several transfers at a time. The queue is idle before and
// after, also after an error: an operation in flight still uses the caller's memory.
Status WriteImage(io::IoQueue& queue, io::File& file, std::span<const std::byte> bytes) {
  // Eight transfers of 1 MiB keep a device busy; a queue may be shallower.
  const std::size_t window = std::min(queue.depth(), kTransfersInFlightMax);
  std::vector<io::Completion> completions;
  std::uint64_t next = 0;
  std::size_t in_flight = 0;
  Status status;
  while (in_flight > 0 || (status.has_value() && next < bytes.size())) {
    while (status.has_value() && in_flight < window && next < bytes.size()) {
      io::Operation write;
      write.kind = io::OpKind::kWrite;
      write.file = &file;
      write.offset = next;
      write.data = bytes.subspan(next, std::min<std::uint64_t>(kWriteBytes,
                                                               bytes.size() - next));
      // The tag carries the length, so that a completion can be compared without a table of
      // operations.
      write.tag = write.data.size();
      status = queue.Submit({&write, 1});
      if (status.has_value()) ++in_flight;
      next += write.data.size();
    }
    completions.clear();
    if (in_flight > 0) in_flight -= queue.Wait(1, completions);
    for (const io::Completion& completion : completions) {
      // The first error is kept; the rest is only waited for.
      if (!status.has_value()) continue;
      if (!completion.bytes.has_value()) {
        status = completion.bytes.error();
      } else if (*completion.bytes != completion.tag) {
        status = Error(ErrorCode::kDataLoss, "a write of a segment wrote " +
                                                 std::to_string(*completion.bytes) + " of " +
                                                 std::to_string(completion.tag) + " bytes");
      }
    }
  }
  return status;
}

class FileSegmentStore final : public SegmentStore {
 public:
  FileSegmentStore(io::IoBackend& backend, io::Directory& directory, const Options& options)
      : backend_(backend), directory_(directory), options_(options), manifest_(directory) {}

  Status Recover();

  Status Put(io::IoQueue& queue, const ExtentKey& key, std::span<std::byte> image,
             const ExtentChecksums& checksums) override;
  Result<std::shared_ptr<const Segment>> Get(const ExtentKey& key) override;
  Status Remove(const ExtentKey& key) override { return RemoveIf(key, std::nullopt); }
  bool Contains(const ExtentKey& key) const override {
    MutexLock lock(index_mutex_);
    const auto found = index_.find(key);
    return found != index_.end() && found->second.state == State::kPublished;
  }
  bool Serves(const Segment& segment) const override {
    MutexLock lock(index_mutex_);
    const auto found = index_.find(segment.key);
    return found != index_.end() && found->second.state == State::kPublished &&
           found->second.segment.lock().get() == &segment;
  }
  std::vector<ExtentKey> Keys() const override;
  std::vector<Stored> Contents() const override;
  std::uint64_t capacity_bytes() const override { return options_.capacity_bytes; }
  std::uint64_t used_bytes() const override {
    MutexLock lock(index_mutex_);
    return used_bytes_;
  }
  Recovery recovery() const override { return recovery_; }

 private:
  using SegmentPtr = std::shared_ptr<const Segment>;
  using OpenList = std::list<std::pair<ExtentKey, SegmentPtr>>;  // least recently used last

  enum class State : std::uint8_t { kWriting, kPublished, kRemoving };
  struct Entry {
    State state = State::kWriting;
    SegmentShape shape;
    // Number of its manifest record. Tells the segment from a later one of the same key.
    std::uint64_t sequence = 0;
    std::weak_ptr<const Segment> segment;  // shared by all readers while one of them holds it
    OpenList::iterator kept;               // its place in open_, if is_kept
    bool is_kept = false;
  };
  struct Names {
    std::string temp;
    std::string published;
  };
  // Files that could not be removed. Their entry stays in the index as kRemoving, so that no
  // new segment of that name can be lost to a late removal, and their bytes stay counted.
  struct Leftover {
    ExtentKey key;
    std::uint64_t file_bytes = 0;
    std::vector<std::string> names;
  };

  Status Reserve(const ExtentKey& key, const SegmentShape& shape, std::string& temp_name);
  Status WriteTemp(io::IoQueue& queue, const std::string& name, const ExtentKey& key,
                   std::span<const std::byte> padded, const SegmentShape& shape,
                   const ExtentChecksums& checksums);
  Status Publish(io::IoQueue& queue, const Names& names, const ExtentKey& key,
                 const SegmentShape& shape);
  Result<SegmentPtr> OpenSegment(const ExtentKey& key, const SegmentShape& shape);
  Status RemoveIf(const ExtentKey& key, std::optional<std::uint64_t> sequence);
  Status RecordRemoval(const ExtentKey& key, const SegmentShape& shape);
  void Discard(Leftover files);
  void RetryLeftovers();
  void RemoveLeftovers(const std::set<std::string, std::less<>>& names)
      FOREBAY_REQUIRES(index_mutex_);
  std::vector<ManifestRecord> LiveRecords() const;
  Status AppendRecord(io::IoQueue& queue, const ManifestRecord& record)
      FOREBAY_REQUIRES(manifest_mutex_);
  void CompactIfDue(io::IoQueue& queue) FOREBAY_REQUIRES(manifest_mutex_);
  SegmentPtr Keep(const ExtentKey& key, Entry& entry, SegmentPtr segment, OpenList& closed)
      FOREBAY_REQUIRES(index_mutex_);
  void Forget(Entry& entry, OpenList& closed) FOREBAY_REQUIRES(index_mutex_);

  io::IoBackend& backend_;
  io::Directory& directory_;
  const Options options_;
  Recovery recovery_;  // constant after Recover

  // Held during I/O, so that records reach the manifest in the order of what they record.
  Mutex manifest_mutex_ FOREBAY_ACQUIRED_BEFORE(index_mutex_);
  ManifestLog manifest_ FOREBAY_GUARDED_BY(manifest_mutex_);

  mutable Mutex index_mutex_;  // never held during I/O once the store is open
  std::unordered_map<ExtentKey, Entry, ExtentKeyHash> index_ FOREBAY_GUARDED_BY(index_mutex_);
  OpenList open_ FOREBAY_GUARDED_BY(index_mutex_);
  std::vector<Leftover> leftovers_ FOREBAY_GUARDED_BY(index_mutex_);
  std::uint64_t used_bytes_ FOREBAY_GUARDED_BY(index_mutex_) = 0;
  std::uint64_t next_sequence_ FOREBAY_GUARDED_BY(index_mutex_) = 0;
  std::uint64_t next_attempt_ FOREBAY_GUARDED_BY(index_mutex_) = 0;
};

// Replays the manifest and compares it with the files: what has a record and a file is published;
// all else goes. No other thread knows the store yet; the locks are held because the functions that
// this one calls require them.
Status FileSegmentStore::Recover() {
  const MutexLock manifest_lock(manifest_mutex_);
  FOREBAY_ASSIGN(std::unique_ptr<io::IoQueue> queue, backend_.CreateQueue({.depth = 1}));
  FOREBAY_ASSIGN(const ParsedManifest manifest, manifest_.Load(*queue));
  // The directory is listed once instead of asking for each record's file: a store may have half a
  // million of them.
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> entries, directory_.List(""));
  std::set<std::string, std::less<>> files;
  for (const io::DirectoryEntry& entry : entries) {
    const NameKind kind = ClassifyName(entry.name);
    if (entry.is_regular && (kind == NameKind::kSegment || kind == NameKind::kTemp)) {
      files.insert(entry.name);
    }
  }
  UniqueLock index_lock(index_mutex_);
  for (const ManifestRecord& record : manifest.records) {
    if (record.kind == ManifestKind::kRemove) {
      // A later record of the same key adds it again. So the last record of a key decides.
      index_.erase(record.key);
      continue;
    }
    // The bytes of the file are not read here. Get verifies the trailer when it opens the segment,
    // so a restart takes seconds and not the time to read the whole tier.
    Entry& entry = index_[record.key];
    entry.state = State::kPublished;
    entry.shape = record.shape;
    entry.sequence = next_sequence_++;
  }
  recovery_.dropped_records = manifest.dropped_records;
  recovery_.has_torn_tail = manifest.has_torn_tail;
  // What remains in `files` after this loop has no record. A record without a file is dropped: the
  // file was removed, but the record of that was lost.
  for (auto it = index_.begin(); it != index_.end();) {
    const auto file = files.find(SegmentName(it->first));
    if (file == files.end()) {
      ++recovery_.dropped_records;
      it = index_.erase(it);
      continue;
    }
    files.erase(file);
    used_bytes_ += it->second.shape.file_bytes();
    ++it;
  }
  recovery_.segments = index_.size();
  RemoveLeftovers(files);
  index_lock.Unlock();
  // The rewrite removes a torn tail and dead records. If it fails, the store can still be read, so
  // the error is left to the first Put, which repeats the rewrite and reports why it fails.
  static_cast<void>(manifest_.Rewrite(*queue, LiveRecords()));
  return {};
}

// A file that cannot be removed is left to the next Open. New temporary files get larger numbers
// than such a file, so that creating one never meets it.
void FileSegmentStore::RemoveLeftovers(const std::set<std::string, std::less<>>& names) {
  for (const std::string& name : names) {
    if (directory_.Unlink(name).has_value()) {
      ++recovery_.removed_files;
    } else if (ClassifyName(name) == NameKind::kTemp) {
      next_attempt_ = std::max(next_attempt_, TempAttempt(name) + 1);
    }
  }
}

Status FileSegmentStore::Put(io::IoQueue& queue, const ExtentKey& key,
                             std::span<std::byte> image, const ExtentChecksums& checksums) {
  // A number of pieces beyond 32 bits stays too large, so IsValid refuses it.
  const SegmentShape shape = {image.size(), static_cast<std::uint32_t>(std::min<std::size_t>(
                                                checksums.pieces.size(), 0xFFFF'FFFF))};
  const auto address = reinterpret_cast<std::uintptr_t>(image.data());
  if (!shape.IsValid() || address % limits::kIoAlignmentBytes != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "an extent on SSD needs aligned memory, 1 to kExtentBytesMax bytes and at most "
                 "kSamplesPerExtentMax pieces; got " + std::to_string(image.size()) +
                     " bytes, " + std::to_string(checksums.pieces.size()) + " pieces");
  }
  if (queue.in_flight() != 0) {
    return Error(ErrorCode::kFailedPrecondition, "Put needs an idle queue");
  }
  // First of all, because the space of leftover files may be needed for this extent.
  RetryLeftovers();
  Names names = {"", SegmentName(key)};
  FOREBAY_TRY(Reserve(key, shape, names.temp));
  // A direct write takes whole blocks; zeros keep old bytes of memory out of the file.
  std::memset(image.data() + image.size(), 0, shape.trailer_offset() - image.size());
  const std::span<const std::byte> padded(image.data(), shape.trailer_offset());
  Status status = WriteTemp(queue, names.temp, key, padded, shape, checksums);
  if (status.has_value()) status = Publish(queue, names, key, shape);
  if (!status.has_value()) {
    // After an error it is unknown whether the rename has happened, so both names are removed.
    Discard({key, shape.file_bytes(), {names.temp, names.published}});
    return status.error().WithContext("storing extent " + KeyText(key) + " on SSD");
  }
  return {};
}

// Claims the key and its bytes before anything is written, so that concurrent Puts neither write
// the same files nor exceed the capacity together.
Status FileSegmentStore::Reserve(const ExtentKey& key, const SegmentShape& shape,
                                 std::string& temp_name) {
  MutexLock lock(index_mutex_);
  if (index_.count(key) != 0) {
    return Error(ErrorCode::kAlreadyExists, "extent " + KeyText(key) + " is on SSD already");
  }
  // Entries that are being removed count as well: their files are still in the directory.
  if (index_.size() >= limits::kSegmentsPerStoreMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "the SSD tier holds kSegmentsPerStoreMax=" +
                     std::to_string(limits::kSegmentsPerStoreMax) +
                     " extents; raise the extent size of the data sets");
  }
  const std::uint64_t capacity = options_.capacity_bytes;
  // The first comparison holds after a restart with a smaller capacity. Nothing is removed for it
  // here; the cache evicts when it needs room.
  if (used_bytes_ > capacity || shape.file_bytes() > capacity - used_bytes_) {
    return Error(ErrorCode::kResourceExhausted,
                 "the SSD tier is full: " + std::to_string(used_bytes_) + " of " +
                     std::to_string(capacity) + " bytes used, " +
                     std::to_string(shape.file_bytes()) + " wanted");
  }
  used_bytes_ += shape.file_bytes();
  index_[key].shape = shape;
  temp_name = SegmentTempName(key, next_attempt_++);
  return {};
}

Status FileSegmentStore::WriteTemp(io::IoQueue& queue, const std::string& name,
                                   const ExtentKey& key, std::span<const std::byte> padded,
                                   const SegmentShape& shape, const ExtentChecksums& checksums) {
  FOREBAY_ASSIGN(io::AlignedBuffer trailer, io::AlignedBuffer::Create(shape.trailer_bytes()));
  EncodeTrailer(key, shape, checksums, trailer.span());
  // Created with a number that no other attempt has, so a file that an earlier attempt could not
  // remove is not in the way.
  FOREBAY_ASSIGN(const std::unique_ptr<io::File> file,
                 directory_.Open(name, options_.direct ? io::OpenMode::kCreateDirect
                                                       : io::OpenMode::kCreate));
  // Reserves the space, so that a full device is found out before the transfer. A file system that
  // cannot reserve reports it in the writes.
  if (const Status reserved = file->Preallocate(shape.file_bytes());
      !reserved.has_value() && reserved.error().code() != ErrorCode::kUnimplemented) {
    return reserved;
  }
  FOREBAY_TRY(WriteImage(queue, *file, padded));
  // The trailer comes after the image. The order on the device is that of the sync below, so a
  // crash may leave any part of both under the temporary name, which the next Open removes.
  FOREBAY_TRY(io::WriteFully(queue, *file, shape.trailer_offset(), trailer.span()));
  return io::DataSync(queue, *file);
}

// The record comes last: what has a record is durable. After a crash before it, the next Open
// removes the file.
Status FileSegmentStore::Publish(io::IoQueue& queue, const Names& names, const ExtentKey& key,
                                 const SegmentShape& shape) {
  FOREBAY_TRY(directory_.Rename(names.temp, names.published));
  // The name must be durable before the record is: a record without its file is dropped at the next
  // Open.
  FOREBAY_TRY(directory_.Sync(""));
  MutexLock lock(manifest_mutex_);
  FOREBAY_TRY(AppendRecord(queue, {ManifestKind::kPublish, key, shape}));
  {
    MutexLock index_lock(index_mutex_);
    Entry& entry = index_[key];
    entry.state = State::kPublished;
    entry.sequence = next_sequence_++;
  }
  CompactIfDue(queue);
  return {};
}

// Removes the files of a segment that is removed or could not be stored, then its entry. If a file
// cannot be removed, the entry and its bytes stay, and RetryLeftovers tries again.
void FileSegmentStore::Discard(Leftover files) {
  // Unlinked before the entry goes, and without the lock. A reader that has the file open keeps its
  // bytes until it closes it.
  std::erase_if(files.names, [this](const std::string& name) {
    const Status removed = directory_.Unlink(name);
    return removed.has_value() || removed.error().code() == ErrorCode::kNotFound;
  });
  MutexLock lock(index_mutex_);
  if (files.names.empty()) {
    used_bytes_ -= files.file_bytes;
    index_.erase(files.key);
  } else {
    index_.at(files.key).state = State::kRemoving;
    leftovers_.push_back(std::move(files));
  }
}

void FileSegmentStore::RetryLeftovers() {
  std::vector<Leftover> leftovers;
  {
    MutexLock lock(index_mutex_);
    // Taken out of the list, so that two threads do not try the same files.
    leftovers.swap(leftovers_);
  }
  for (Leftover& files : leftovers) Discard(std::move(files));
}

// Records of the published segments, in the order in which they were published.
std::vector<ManifestRecord> FileSegmentStore::LiveRecords() const {
  MutexLock lock(index_mutex_);
  std::vector<std::pair<std::uint64_t, ManifestRecord>> live;
  // Segments that are being written or removed have no place in a new manifest: their own record
  // follows, or must not return.
  for (const auto& [key, entry] : index_) {
    if (entry.state != State::kPublished) continue;
    live.push_back({entry.sequence, {ManifestKind::kPublish, key, entry.shape}});
  }
  std::ranges::sort(live, {}, [](const auto& item) { return item.first; });
  std::vector<ManifestRecord> records;
  records.reserve(live.size());
  for (const auto& [sequence, record] : live) records.push_back(record);
  return records;
}

Status FileSegmentStore::AppendRecord(io::IoQueue& queue, const ManifestRecord& record) {
  // After a failed write the manifest is made again, from the index, before anything is appended.
  if (manifest_.needs_rewrite() || manifest_.record_count() >= kManifestRecordsMax) {
    FOREBAY_TRY(manifest_.Rewrite(queue, LiveRecords()));
  }
  return manifest_.Append(queue, record);
}

// Rewrites the manifest if it has more dead records than live ones. The caller's record is durable
// already, so an error here is not the caller's: either the old manifest is still in use, or the
// next append rewrites it.
void FileSegmentStore::CompactIfDue(io::IoQueue& queue) {
  const std::uint64_t records = manifest_.record_count();
  std::uint64_t entries = 0;
  {
    MutexLock lock(index_mutex_);
    // Includes segments without a record yet, which makes compaction a little later and never
    // wrong.
    entries = index_.size();
  }
  if (records < entries + std::max(entries, kDeadRecordsMin)) return;
  static_cast<void>(manifest_.Rewrite(queue, LiveRecords()));
}

Result<FileSegmentStore::SegmentPtr> FileSegmentStore::OpenSegment(const ExtentKey& key,
                                                                   const SegmentShape& shape) {
  Result<std::unique_ptr<io::File>> file = directory_.Open(
      SegmentName(key), options_.direct ? io::OpenMode::kReadDirect : io::OpenMode::kRead);
  if (!file.has_value()) {
    if (file.error().code() != ErrorCode::kNotFound) return file.error();
    return Error(ErrorCode::kDataLoss, "segment " + KeyText(key) + ": its file is missing");
  }
  // The image is not read here: each read of a piece verifies that piece.
  FOREBAY_ASSIGN(const io::FileInfo info, (*file)->Info());
  // Checked before the trailer is read at an offset that the file may not have.
  if (info.bytes != shape.file_bytes()) {
    return Error(ErrorCode::kDataLoss, "segment " + KeyText(key) + " has " +
                                           std::to_string(info.bytes) + " bytes, expected " +
                                           std::to_string(shape.file_bytes()));
  }
  FOREBAY_ASSIGN(io::AlignedBuffer trailer, io::AlignedBuffer::Create(shape.trailer_bytes()));
  // A queue belongs to one thread, and any thread may call Get. Opening is rare enough for a queue
  // of its own.
  FOREBAY_ASSIGN(const std::unique_ptr<io::IoQueue> queue, backend_.CreateQueue({.depth = 1}));
  FOREBAY_TRY(io::ReadFully(*queue, **file, shape.trailer_offset(), trailer.span()));
  FOREBAY_ASSIGN(ExtentChecksums checksums, DecodeTrailer(key, shape, trailer.span()));
  auto segment = std::make_shared<Segment>();
  segment->key = key;
  segment->image_bytes = shape.image_bytes;
  segment->checksums = std::move(checksums);
  segment->file = std::move(*file);
  return SegmentPtr(std::move(segment));
}

// Keeps the segment open for the next reader: moves it to the front of open_. A segment that must
// be closed because of the limit goes to `closed`, which the caller destroys after it has released
// the lock.
FileSegmentStore::SegmentPtr FileSegmentStore::Keep(const ExtentKey& key, Entry& entry,
                                                    SegmentPtr segment, OpenList& closed) {
  if (entry.is_kept) {
    // Splicing keeps the iterator in the entry valid.
    open_.splice(open_.begin(), open_, entry.kept);
    return segment;
  }
  open_.emplace_front(key, segment);
  entry.segment = segment;
  entry.kept = open_.begin();
  entry.is_kept = true;
  // Bounds the descriptors that are open although no reader uses them.
  if (open_.size() > limits::kSegmentsOpenMax) {
    Forget(index_.at(open_.back().first), closed);
  }
  return segment;
}

void FileSegmentStore::Forget(Entry& entry, OpenList& closed) {
  if (!entry.is_kept) return;
  closed.splice(closed.end(), open_, entry.kept);
  entry.is_kept = false;
}

Result<std::shared_ptr<const Segment>> FileSegmentStore::Get(const ExtentKey& key) {
  const auto not_found = [&key] {
    return Error(ErrorCode::kNotFound, "extent " + KeyText(key) + " is not on SSD");
  };
  OpenList closed;
  SegmentShape shape;
  std::uint64_t sequence = 0;
  {
    MutexLock lock(index_mutex_);
    const auto found = index_.find(key);
    if (found == index_.end() || found->second.state != State::kPublished) return not_found();
    Entry& entry = found->second;
    // A segment that has left open_ may still be held by a reader; it is kept again and not opened
    // twice.
    if (SegmentPtr segment = entry.segment.lock()) {
      return Keep(key, entry, std::move(segment), closed);
    }
    shape = entry.shape;
    sequence = entry.sequence;
  }
  Result<SegmentPtr> opened = OpenSegment(key, shape);
  if (!opened.has_value()) {
    const Error error = opened.error();
    // A segment that cannot be verified is removed, but not one that was stored in its place since.
    if (error.code() == ErrorCode::kDataLoss ||
        error.code() == ErrorCode::kFailedPrecondition) {
      const Status removed = RemoveIf(key, sequence);
      // Another thread has removed the segment since the look-up. Its missing file is no fault of
      // the device, and nobody must count it as one.
      if (!removed.has_value() && removed.error().code() == ErrorCode::kNotFound) {
        return not_found();
      }
      // Any other outcome does not matter: even if the removal fails, the extent is no longer
      // served.
    }
    return error;
  }
  // The lock was not held while the file was opened: the segment may have been removed, or removed
  // and stored again, since.
  MutexLock lock(index_mutex_);
  const auto found = index_.find(key);
  if (found == index_.end() || found->second.state != State::kPublished ||
      found->second.sequence != sequence) {
    return not_found();
  }
  // If another thread has opened it too, all readers share the one that came first.
  SegmentPtr segment = found->second.segment.lock();
  return Keep(key, found->second, segment ? std::move(segment) : std::move(*opened), closed);
}

Status FileSegmentStore::RecordRemoval(const ExtentKey& key, const SegmentShape& shape) {
  // Remove may be called from any thread, so it has no queue of a caller.
  FOREBAY_ASSIGN(const std::unique_ptr<io::IoQueue> queue, backend_.CreateQueue({.depth = 1}));
  MutexLock lock(manifest_mutex_);
  FOREBAY_TRY(AppendRecord(*queue, {ManifestKind::kRemove, key, shape}));
  CompactIfDue(*queue);
  return {};
}

// With a `sequence`, removes only the segment of that number, so that a caller that has read an
// earlier segment of this key does no harm to a later one.
Status FileSegmentStore::RemoveIf(const ExtentKey& key, std::optional<std::uint64_t> sequence) {
  OpenList closed;
  SegmentShape shape;
  {
    MutexLock lock(index_mutex_);
    const auto found = index_.find(key);
    if (found == index_.end() || found->second.state != State::kPublished ||
        found->second.sequence != sequence.value_or(found->second.sequence)) {
      return Error(ErrorCode::kNotFound, "extent " + KeyText(key) + " is not on SSD");
    }
    // The entry stays until the file is gone. Otherwise a Put of the same key could write a file
    // that this call then removes.
    // From here on Get and Contains do not find it.
    found->second.state = State::kRemoving;
    shape = found->second.shape;
    Forget(found->second, closed);
  }
  const Status recorded = RecordRemoval(key, shape);
  // The file is removed even if the record could not be written: Open ignores a record without a
  // file.
  Discard({key, shape.file_bytes(), {SegmentName(key)}});
  if (!recorded.has_value()) {
    return recorded.error().WithContext("removing extent " + KeyText(key) + " from SSD");
  }
  return {};
}

std::vector<SegmentStore::Stored> FileSegmentStore::Contents() const {
  std::vector<Stored> contents;
  for (const ManifestRecord& record : LiveRecords()) {
    contents.push_back({.key = record.key, .file_bytes = record.shape.file_bytes()});
  }
  return contents;
}

std::vector<ExtentKey> FileSegmentStore::Keys() const {
  std::vector<ExtentKey> keys;
  for (const ManifestRecord& record : LiveRecords()) keys.push_back(record.key);
  return keys;
}

}  // namespace

std::uint64_t SegmentStore::FileBytes(std::uint64_t image_bytes, std::size_t pieces) {
  return SegmentShape::Padded(image_bytes) + SegmentShape::Padded(std::uint64_t{pieces} * 8) +
         limits::kIoAlignmentBytes;
}

Result<std::unique_ptr<SegmentStore>> SegmentStore::Open(io::IoBackend& backend,
                                                         io::Directory& directory,
                                                         const Options& options) {
  auto store = std::make_unique<FileSegmentStore>(backend, directory, options);
  FOREBAY_TRY(store->Recover());
  return std::unique_ptr<SegmentStore>(std::move(store));
}

}  // namespace forebay::tier
