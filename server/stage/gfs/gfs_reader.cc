// ExtentReads paces the requests of one extent: each takes a permit from the gate, and the caller
// reaps completed reads while it waits for one. Large objects stay open in open_ and are checked
// after each read; whole files (ReadRun) are opened and checked one by one, and checked again and
// closed as soon as their last bytes are there.
#include "server/stage/gfs/gfs_reader.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::stage {
namespace {

// Objects that one call of ReadPieces holds open, so that four callers fit in the limit.
constexpr std::size_t kObjectsOfPiecesMax = limits::kOpenObjectsMax / 4;

// A file that is read whole. It is compared with its catalog once more when all of it is there.
struct WholeFile {
  std::unique_ptr<io::File> file;
  std::uint64_t unread_bytes = 0;
};

// The reads of one extent. Each read holds a reference to its file until it has ended, so a small
// file is open no longer than its bytes are under way.
class ExtentReads {
 public:
  ExtentReads(io::IoQueue& queue, Dataset& dataset, RequestGate& gate, GfsThrottle* throttle,
              const Priority& priority)
      : queue_(queue),
        dataset_(dataset),
        gate_(gate),
        throttle_(throttle),
        priority_(priority),
        reads_(queue.depth()) {
    for (std::size_t i = reads_.size(); i > 0; --i) free_.push_back(i - 1);
  }
  ExtentReads(const ExtentReads&) = delete;
  ExtentReads& operator=(const ExtentReads&) = delete;
  // Also after an error: a read that is under way still writes to memory that the caller will free.
  ~ExtentReads() {
    want_.reset();
    is_given_up_ = true;
    while (in_flight() > 0) (void)Reap();
  }

  // Starts reading `image` from `offset` of `object` on, in requests of `request_bytes`. Returns
  // with some of them under way; an error may be of an earlier read.
  Status Read(const catalog::ObjectInfo& object, const std::shared_ptr<io::File>& file,
              std::uint64_t offset, std::span<std::byte> image, std::uint64_t request_bytes) {
    return Start({.file = file, .object = object, .offset = offset}, image, request_bytes);
  }
  // As Read, for a whole object, which has been checked when it was opened. If it has changed when
  // its last read ends, that is the error of the read.
  Status ReadWhole(const catalog::ObjectInfo& object, std::unique_ptr<io::File> file,
                   std::span<std::byte> image, std::uint64_t request_bytes) {
    const auto whole = std::make_shared<WholeFile>(
        WholeFile{.file = std::move(file), .unread_bytes = image.size()});
    return Start({.file = {whole, whole->file.get()}, .object = object, .whole = whole}, image,
                 request_bytes);
  }
  Status Finish() {
    while (in_flight() > 0) FOREBAY_TRY(Reap());
    return {};
  }

 private:
  struct OneRead {
    std::shared_ptr<io::File> file = nullptr;
    catalog::ObjectInfo object = {};
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    RequestGate::Permit permit = 0;
    std::shared_ptr<WholeFile> whole = nullptr;  // null: the caller checks the object
  };

  std::size_t in_flight() const { return reads_.size() - free_.size(); }
  // Reads `image` from where `first` begins, in requests of `request_bytes`.
  Status Start(const OneRead& first, std::span<std::byte> image, std::uint64_t request_bytes);
  // Waits for the permit of the next request, of `bytes`. `requests`: how many are to be made, with
  // that one.
  Result<RequestGate::Permit> AwaitPermit(RequestGate::Group group, std::size_t requests,
                                          std::uint64_t bytes);
  Status Reap();
  Status Outcome(const OneRead& read, const io::Completion& completion) const;

  io::IoQueue& queue_;
  Dataset& dataset_;
  RequestGate& gate_;
  GfsThrottle* const throttle_;
  const Priority& priority_;
  std::vector<OneRead> reads_;     // by tag
  std::vector<std::size_t> free_;  // tags
  std::vector<io::Completion> completions_;
  std::optional<RequestGate::Want> want_;  // while Start has more requests to make
  bool is_given_up_ = false;  // nobody will use the bytes, so they need no check
};

// Blocks in the gate only while this thread holds no permit; otherwise it reaps its own reads,
// which frees permits. A thread that blocked with permits in hand could wait for itself. Places
// that become free meanwhile must not all go to later demands and background work, or a demanded
// extent would have to share the bandwidth with these. And no permit is taken while the caps of the
// job leave no room for the request: a more urgent one may come meanwhile, and needs the permit.
Result<RequestGate::Permit> ExtentReads::AwaitPermit(RequestGate::Group group,
                                                     std::size_t requests, std::uint64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  while (in_flight() > 0) {
    // It can make as many as it has tags.
    const std::size_t wanted = std::min(requests, free_.size());
    const bool has_room = throttle_ == nullptr || throttle_->HasRoom(Cap::kBytes, amount);
    if (wanted > 0 && has_room) {
      if (const auto permit = gate_.TryAcquire(priority_, group)) {
        if (want_) want_->Renew(wanted - 1);
        return *permit;
      }
      if (!want_) want_.emplace(gate_, priority_, group);
    }
    if (want_) want_->Set(wanted);
    FOREBAY_TRY(Reap());
  }
  if (throttle_ != nullptr) throttle_->Await(Cap::kBytes, amount);
  // The places that are kept for this extent are kept until it has one of them.
  const RequestGate::Permit permit = gate_.Acquire(priority_, group);
  want_.reset();
  return permit;
}

Status ExtentReads::Start(const OneRead& first, std::span<std::byte> image,
                          std::uint64_t request_bytes) {
  const RequestGate::Group group = GroupOf(dataset_, first.object.path);
  for (std::uint64_t done = 0; done < image.size(); done += request_bytes) {
    const std::uint64_t length = std::min<std::uint64_t>(request_bytes, image.size() - done);
    const std::uint64_t left = (image.size() - done + request_bytes - 1) / request_bytes;
    FOREBAY_ASSIGN(const RequestGate::Permit permit, AwaitPermit(group, left, length));
    // There is a free tag: AwaitPermit returns with one, because a caller without one reaps first.
    const std::size_t tag = free_.back();
    OneRead read = first;
    read.offset += done;
    read.length = length;
    read.permit = permit;
    io::Operation operation;
    operation.file = read.file.get();
    operation.offset = read.offset;
    operation.buffer = image.subspan(done, length);
    operation.tag = tag;
    // The tag is taken only after the submission, so that an error leaves nothing to reap.
    const Status submitted = queue_.Submit({&operation, 1});
    if (!submitted.has_value()) {
      gate_.Release(permit);
      return submitted;
    }
    free_.pop_back();
    reads_[tag] = std::move(read);
  }
  want_.reset();
  return {};
}

// Waits for at least one read, and accounts for all that have ended. Returns the first error.
Status ExtentReads::Reap() {
  completions_.clear();
  queue_.Wait(1, completions_);
  std::uint64_t moved = 0;
  // All permits first, because Outcome may ask the GFS for the state of a file.
  for (const io::Completion& completion : completions_) {
    gate_.Release(reads_[completion.tag].permit);
  }
  Status first;
  for (const io::Completion& completion : completions_) {
    moved += completion.bytes.value_or(0);
    const OneRead read = std::exchange(reads_[completion.tag], {});
    free_.push_back(completion.tag);
    Status outcome = Outcome(read, completion);
    if (first.has_value() && !outcome.has_value()) first = std::move(outcome);
  }
  // Counted also after an error: these bytes have been read from the GFS.
  dataset_.CountGfs(0, completions_.size(), moved, 0);
  return first;
}

Status ExtentReads::Outcome(const OneRead& read, const io::Completion& completion) const {
  if (!completion.bytes.has_value()) {
    return completion.bytes.error().WithContext("reading object '" +
                                                std::string(read.object.path) + "' at offset " +
                                                std::to_string(read.offset));
  }
  if (*completion.bytes == read.length) {
    if (!read.whole || is_given_up_) return {};
    read.whole->unread_bytes -= read.length;
    if (read.whole->unread_bytes > 0) return {};
    // A file that is written to in place while it is read gives a mixture of both versions. Only a
    // check after the read finds that. The read's permit was released before, so other reads go on
    // while this call waits for the GFS.
    dataset_.CountGfs(0, 0, 0, 1);
    return CheckObjectUnchanged(dataset_, read.object, *read.file);
  }
  return Error(ErrorCode::kDataLoss,
               "object '" + std::string(read.object.path) + "' ends at offset " +
                   std::to_string(read.offset + *completion.bytes) + ", but its catalog says " +
                   std::to_string(read.object.bytes) +
                   " bytes: it was truncated after it was catalogued");
}

// The name under which PatientBackend announces calls about the object.
GfsCalls::Object CalledObject(const Dataset& dataset, const catalog::ObjectInfo& object) {
  return {.root = dataset.options().root_path, .path = object.path};
}

}  // namespace

RequestGate::Group GroupOf(const Dataset& dataset, std::string_view path) {
  // Two objects may get the same number. Then one may wait while the other is not answered, which
  // is slow but not wrong.
  return dataset.hash() ^ Checksum(std::as_bytes(std::span(path)));
}

Status CheckObjectUnchanged(const Dataset& dataset, const catalog::ObjectInfo& object,
                            const io::File& file) {
  // Size and modification time are all that a file system tells about a change. A change that keeps
  // both is found by FirstReads.
  FOREBAY_ASSIGN(const io::FileInfo now, file.Info());
  if (now.bytes == object.bytes && now.mtime_ns == object.mtime_ns) return {};
  const char* what = now.bytes != object.bytes ? "size" : "modification time";
  return Error(ErrorCode::kFailedPrecondition,
               "object '" + std::string(object.path) + "' of '" + dataset.name() +
                   "' has changed since it was catalogued (" + what + "; now " +
                   std::to_string(now.bytes) + " bytes, catalogued " +
                   std::to_string(object.bytes) + "); " +
                   (dataset.is_replaced()
                        ? "the data set was rebuilt from it: open the stream again"
                        : "run 'forebay stage --rebuild' to catalogue it again"));
}

Result<std::unique_ptr<io::File>> OpenObjectChecked(Dataset& dataset,
                                                    const catalog::ObjectInfo& object) {
  // Counted before the call: an open that fails is a request to the GFS too.
  dataset.CountGfs(1, 0, 0, 0);
  auto file = dataset.root().Open(object.path, io::OpenMode::kRead);
  if (!file.has_value()) {
    return file.error().WithContext("opening object '" + std::string(object.path) + "' of '" +
                                    dataset.name() + "'");
  }
  FOREBAY_TRY(CheckObjectUnchanged(dataset, object, **file));
  return std::move(*file);
}

Result<std::shared_ptr<GfsReader::OpenObject>> GfsReader::OpenShared(
    Dataset& dataset, const catalog::Catalog& catalog, ObjectId object) {
  // The entry is found or made under the lock, but the object is opened under the entry's own, so
  // that a slow open delays only threads that need the same object.
  std::shared_ptr<OpenObject> entry;
  std::vector<std::shared_ptr<OpenObject>> closing;  // closed outside the lock
  {
    const MutexLock lock(mutex_);
    const ObjectKey key{&dataset, object};
    std::shared_ptr<OpenObject>& slot = open_[key];
    if (!slot) {
      slot = std::make_shared<OpenObject>();
      oldest_.push_back(key);
    }
    entry = slot;
    // A closed entry stays usable for threads that still hold a reference to it.
    while (oldest_.size() > limits::kOpenObjectsMax) {
      auto found = open_.find(oldest_.front());
      if (found != open_.end()) {
        closing.push_back(std::move(found->second));
        open_.erase(found);
      }
      oldest_.pop_front();
    }
  }
  // The turn for the open is awaited here, with the priority of this thread. A thread that waited
  // for it with the entry's mutex would make a more urgent one wait, too.
  if (throttle_ != nullptr && throttle_->IsCapped(Cap::kOpens) && entry->mutex.TryLock()) {
    const bool has_file = entry->file != nullptr;
    entry->mutex.Unlock();
    if (!has_file) throttle_->Await(Cap::kOpens, 1);
  }
  const catalog::ObjectInfo info = catalog.object(object);
  std::optional<GfsCalls::Call> waits;
  if (!entry->mutex.TryLock()) {
    // Another thread is opening it. This thread depends on the same answer of the GFS, so it counts
    // as a caller too, and can be found late or hung.
    if (calls_ != nullptr) waits.emplace(*calls_, "open", CalledObject(dataset, info));
    entry->mutex.Lock();
  }
  const MutexLock lock(entry->mutex, std::adopt_lock);
  // After an error the entry stays without a file, and the next thread that needs it tries again.
  if (!entry->file) {
    FOREBAY_ASSIGN(entry->file, OpenObjectChecked(dataset, info));
  }
  return entry;
}

// Counts for the cap on opens, because one open of a handle that stays open is followed by many
// checks. No permit is held here.
Status GfsReader::CheckAfterRead(Dataset& dataset, const catalog::ObjectInfo& object,
                                 const io::File& file) {
  if (throttle_ != nullptr) FOREBAY_TRY(throttle_->Take(Cap::kOpens, 1));
  dataset.CountGfs(0, 0, 0, 1);
  return CheckObjectUnchanged(dataset, object, file);
}

void GfsReader::Forget(const ObjectKey& key, const std::shared_ptr<OpenObject>& failed) {
  const MutexLock lock(mutex_);
  const auto found = open_.find(key);
  // Another thread may have forgotten the failed handle already, and opened a new one, which stays.
  if (found == open_.end() || found->second != failed) return;
  open_.erase(found);
  std::erase(oldest_, key);
}

void GfsReader::CloseObjects(const Dataset& dataset) {
  std::vector<std::shared_ptr<OpenObject>> closing;  // declared first: closed after the lock
  const MutexLock lock(mutex_);
  for (auto entry = open_.begin(); entry != open_.end();) {
    if (entry->first.dataset == &dataset) {
      closing.push_back(std::move(entry->second));
      entry = open_.erase(entry);
    } else {
      ++entry;
    }
  }
  std::erase_if(oldest_, [&](const ObjectKey& key) { return key.dataset == &dataset; });
}

Status GfsReader::ReadImage(io::IoQueue& queue, Dataset& dataset,
                            const catalog::Catalog& catalog, ExtentId extent,
                            const Priority& priority, std::span<std::byte> image,
                            bool past_caches) {
  const catalog::ExtentInfo info = catalog.extent(extent);
  FOREBAY_CHECK(image.size() == info.bytes);
  // A part of a large object: several extents use the same handle.
  if (info.object_count == 1 && catalog.object(info.first_object).bytes > info.bytes) {
    return ReadRange(queue, dataset, catalog, info, priority, image, past_caches);
  }
  std::vector<catalog::ObjectInfo> objects;
  objects.reserve(info.object_count);
  for (std::uint32_t i = 0; i < info.object_count; ++i) {
    objects.push_back(catalog.object(ObjectId(info.first_object.value() + i)));
  }
  return ReadRun(queue, dataset, objects, priority, image, past_caches);
}

Status GfsReader::ReadRange(io::IoQueue& queue, Dataset& dataset,
                            const catalog::Catalog& catalog, const catalog::ExtentInfo& info,
                            const Priority& priority, std::span<std::byte> image,
                            bool past_caches) {
  const GfsThrottle::Caller caller(throttle_, priority);
  FOREBAY_ASSIGN(const std::shared_ptr<OpenObject> object,
                 OpenShared(dataset, catalog, info.first_object));
  if (past_caches) object->file->DropCached();
  const catalog::ObjectInfo described = catalog.object(info.first_object);
  Status status;
  {
    ExtentReads reads(queue, dataset, gate_, throttle_, priority);
    status = reads.Read(described, {object, object->file.get()}, info.object_offset, image,
                        request_bytes_);
    if (status.has_value()) status = reads.Finish();
  }
  if (status.has_value()) {
    // The handle stays open for many extents, and the object may change meanwhile. Only a check
    // after the read proves that the bytes are those of the object that was catalogued.
    status = CheckAfterRead(dataset, described, *object->file);
  }
  // The handle may have become stale, and would then fail for ever. The next read opens a new one.
  if (!status.has_value()) Forget({&dataset, info.first_object}, object);
  return status;
}

// Opening files is slow on a GFS, so the next file is opened while the bytes of the ones before are
// still under way.
Status GfsReader::ReadRun(io::IoQueue& queue, Dataset& dataset,
                          std::span<const catalog::ObjectInfo> objects, const Priority& priority,
                          std::span<std::byte> image, bool past_caches) {
  const GfsThrottle::Caller caller(throttle_, priority);
  ExtentReads reads(queue, dataset, gate_, throttle_, priority);
  std::uint64_t placed = 0;
  for (const catalog::ObjectInfo& object : objects) {
    // Checked before the read, which would otherwise write behind the image.
    if (object.bytes > image.size() - placed) {
      return Error(ErrorCode::kDataLoss, "catalog of '" + dataset.name() +
                                             "': the objects of an extent are larger than it");
    }
    // The permits of the reads under way are not held while this open waits for its turn, unless
    // another thread takes the room for it just now.
    if (throttle_ != nullptr && !throttle_->HasRoom(Cap::kOpens, 1)) {
      FOREBAY_TRY(reads.Finish());
      throttle_->Await(Cap::kOpens, 1);
    }
    FOREBAY_ASSIGN(std::unique_ptr<io::File> file, OpenObjectChecked(dataset, object));
    if (past_caches) file->DropCached();
    FOREBAY_TRY(reads.ReadWhole(object, std::move(file), image.subspan(placed, object.bytes),
                                request_bytes_));
    placed += object.bytes;
  }
  FOREBAY_TRY(reads.Finish());
  if (placed != image.size()) {
    return Error(ErrorCode::kDataLoss,
                 "catalog of '" + dataset.name() +
                     "': the objects of an extent are smaller than it");
  }
  return {};
}

// Translates a range of an extent to ranges of objects: the extent is a range of one object, or a
// run of whole objects.
Status GfsReader::CutAtObjects(const catalog::Catalog& catalog, const tier::SourceRead& read,
                               std::vector<ObjectRange>& ranges) {
  const catalog::ExtentInfo info = catalog.extent(read.extent);
  FOREBAY_CHECK(read.offset <= info.bytes && read.memory.size() <= info.bytes - read.offset);
  if (info.object_count == 1) {
    ranges.push_back({.object = info.first_object,
                      .offset = info.object_offset + read.offset,
                      .memory = read.memory});
    return {};
  }
  std::uint64_t begin = 0;  // offset of the object in the extent
  std::span<std::byte> left = read.memory;
  for (std::uint32_t i = 0; i < info.object_count && !left.empty(); ++i) {
    const ObjectId object(info.first_object.value() + i);
    const std::uint64_t bytes = catalog.object(object).bytes;
    const std::uint64_t at = read.offset + (read.memory.size() - left.size());
    if (at < begin + bytes) {
      const std::uint64_t length = std::min<std::uint64_t>(left.size(), begin + bytes - at);
      ranges.push_back({.object = object, .offset = at - begin, .memory = left.first(length)});
      left = left.subspan(length);
    }
    begin += bytes;
  }
  if (left.empty()) return {};
  return Error(ErrorCode::kDataLoss, "in the catalog, the objects of extent " +
                                         std::to_string(read.extent.value()) +
                                         " are smaller than it");
}

bool GfsReader::IsBlocked(const Dataset& dataset, const catalog::Catalog& catalog,
                         ExtentId extent) const {
  if (calls_ == nullptr || !calls_->AnyLate()) return false;
  const catalog::ExtentInfo info = catalog.extent(extent);
  for (std::uint32_t i = 0; i < info.object_count; ++i) {
    const ObjectId object(info.first_object.value() + i);
    if (calls_->IsLate(CalledObject(dataset, catalog.object(object)))) return true;
  }
  return false;
}

// Fails at once if other threads wait for the object already, so that this thread can serve readers
// of other objects.
Status GfsReader::CheckAnswers(const Dataset& dataset, const catalog::Catalog& catalog,
                               ObjectId object) const {
  if (calls_ == nullptr || !calls_->AnyLate()) return {};
  const catalog::ObjectInfo info = catalog.object(object);
  if (!calls_->IsLate(CalledObject(dataset, info))) return {};
  return Error(ErrorCode::kUnavailable,
               "object '" + std::string(info.path) + "' of '" + dataset.name() +
                   "': the GFS has not answered for " +
                   std::to_string(calls_->late_after_ns() / 1'000'000'000) +
                   " s; no new reads of the object are sent until it does");
}

Status GfsReader::ReadPieces(io::IoQueue& queue, Dataset& dataset,
                             const catalog::Catalog& catalog,
                             std::span<const tier::SourceRead> reads, const Priority& priority) {
  const GfsThrottle::Caller caller(throttle_, priority);
  // All objects are checked before the first read, so that a batch does not begin in vain.
  std::vector<ObjectRange> ranges;
  for (const tier::SourceRead& read : reads) FOREBAY_TRY(CutAtObjects(catalog, read, ranges));
  for (const ObjectRange& range : ranges) FOREBAY_TRY(CheckAnswers(dataset, catalog, range.object));
  // Part by part, so that a minibatch of small files does not hold all of them open at once.
  std::span<const ObjectRange> left = ranges;
  std::unordered_set<ObjectId, IdHash> part;
  while (!left.empty()) {
    part.clear();
    std::size_t count = 0;
    for (; count < left.size(); ++count) {
      const ObjectId object = left[count].object;
      if (part.size() == kObjectsOfPiecesMax && !part.contains(object)) break;
      part.insert(object);
    }
    FOREBAY_TRY(ReadRanges(queue, dataset, catalog, left.first(count), priority));
    left = left.subspan(count);
  }
  return {};
}

Status GfsReader::ReadRanges(io::IoQueue& queue, Dataset& dataset,
                             const catalog::Catalog& catalog,
                             std::span<const ObjectRange> ranges, const Priority& priority) {
  std::unordered_map<ObjectId, std::shared_ptr<OpenObject>, IdHash> objects;
  for (const ObjectRange& range : ranges) {
    std::shared_ptr<OpenObject>& object = objects[range.object];
    if (object) continue;
    // All objects are opened before the first read, so no read is wasted if one cannot be opened.
    FOREBAY_ASSIGN(object, OpenShared(dataset, catalog, range.object));
  }
  Status status;
  {
    // This block ends when no read is under way, also after an error: only then are objects
    // checked.
    ExtentReads under_way(queue, dataset, gate_, throttle_, priority);
    const std::uint64_t request_bytes = std::min(request_bytes_, limits::kPieceRequestBytesMax);
    for (const ObjectRange& range : ranges) {
      const std::shared_ptr<OpenObject>& object = objects[range.object];
      status = under_way.Read(catalog.object(range.object), {object, object->file.get()},
                              range.offset, range.memory, request_bytes);
      if (!status.has_value()) break;
    }
    if (status.has_value()) status = under_way.Finish();
  }
  // As in ReadRange: only a check after the read proves that the objects have not changed.
  for (const auto& [number, object] : objects) {
    if (!status.has_value()) break;
    status = CheckAfterRead(dataset, catalog.object(number), *object->file);
  }
  if (status.has_value()) return status;
  // It is not known here which handle failed, so all are opened again at the next read.
  for (const auto& [number, object] : objects) Forget({&dataset, number}, object);
  return status;
}

}  // namespace forebay::stage
