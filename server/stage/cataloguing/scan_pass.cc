// A pipeline: requests are submitted up to `depth` ahead, completed in any order, but given to the
// scanner in the order of the pass. Chunks that the scanner has seen stay in fed_ until no extent
// can contain a part of them; their memory is then reused.
#include "server/stage/cataloguing/scan_pass.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/contract/check.h"
#include "server/stage/gfs/gfs_reader.h"

namespace forebay::stage {

ScanPass::ScanPass(Dataset& dataset, const catalog::ScanPlan& plan,
                   std::span<const ObjectId> objects, io::IoQueue& queue,
                   io::IoQueue& idle_queue, const Options& options, Hooks hooks)
    : dataset_(dataset),
      queue_(queue),
      idle_queue_(idle_queue),
      options_(options),
      hooks_(std::move(hooks)),
      plan_(plan),
      objects_(objects) {}

Status ScanPass::Run() {
  Status status = IssueAhead();
  while (status.has_value() && !has_refused_ && !pending_.empty()) {
    status = AwaitFront();
    if (status.has_value()) status = FeedFront();
    if (status.has_value() && !has_refused_) status = IssueAhead();
  }
  // Also after an error: reads in flight still write to the chunks' memory.
  while (queue_.in_flight() > 0) queue_.Wait(queue_.in_flight(), completions_);
  for (Chunk& chunk : pending_) Release(chunk);
  return status;
}

void ScanPass::Release(Chunk& chunk) {
  if (chunk.permit) options_.gate->Release(*chunk.permit);
  chunk.permit.reset();
}

// The error names the object, because a user who lists several data sets sees only this.
Result<tier::ArenaBlock> ScanPass::Allocate(std::uint64_t bytes, const std::string& object) {
  Result<tier::ArenaBlock> memory = hooks_.allocate(bytes);
  if (memory.has_value() || memory.error().code() != ErrorCode::kResourceExhausted) return memory;
  return memory.error().WithContext("no memory to stage object '" + object +
                                    "'; raise tier.ram.capacity");
}

// Keeps up to `depth` requests in flight, in the order of the pass.
Status ScanPass::IssueAhead() {
  while (pending_.size() < options_.depth && next_object_ < objects_.size()) {
    Chunk chunk;
    chunk.object = objects_[next_object_];
    const catalog::PlannedObject& object = ObjectOf(chunk);
    if (!file_) {
      FOREBAY_TRY(ReapBeforeWaiting());
      FOREBAY_ASSIGN(auto opened, OpenObjectChecked(dataset_, {.path = object.path,
                                                               .bytes = object.bytes,
                                                               .mtime_ns = object.mtime_ns}));
      file_ = std::move(opened);
      if (options_.past_caches) file_->DropCached();
    }
    chunk.offset = next_offset_;
    chunk.length = std::min(options_.request_bytes, object.bytes - next_offset_);
    chunk.file = file_;
    chunk.done = chunk.length == 0;  // an empty object: nothing to read, but it is scanned
    if (chunk.length > 0) {
      // Memory of chunks that are done is used again: the pass needs no more than its depth, and an
      // allocation may have to wait.
      if (spare_.empty()) {
        FOREBAY_TRY(ReapBeforeWaiting());
        FOREBAY_ASSIGN(chunk.memory, Allocate(options_.request_bytes, object.path));
      } else {
        chunk.memory = std::move(spare_.back());
        spare_.pop_back();
      }
      FOREBAY_ASSIGN(const bool is_submitted, Submit(chunk));
      if (!is_submitted) {
        spare_.push_back(std::move(chunk.memory));
        return {};
      }
    }
    ++issued_;
    next_offset_ += chunk.length;
    if (next_offset_ == object.bytes) {
      ++next_object_;
      next_offset_ = 0;
      file_.reset();
    }
    pending_.push_back(std::move(chunk));
  }
  return {};
}

// Waits in the gate only if this pass holds no permit, as GfsReader does.
Result<bool> ScanPass::Submit(Chunk& chunk) {
  if (options_.gate != nullptr) {
    const RequestGate::Group group = GroupOf(dataset_, ObjectOf(chunk).path);
    chunk.permit = queue_.in_flight() > 0 ? options_.gate->TryAcquire(priority_, group)
                                          : options_.gate->Acquire(priority_, group);
    if (!chunk.permit) return false;
  }
  io::Operation read;
  read.file = chunk.file.get();
  read.offset = chunk.offset;
  read.buffer = chunk.bytes();
  read.tag = issued_;
  const Status submitted = queue_.Submit({&read, 1});
  if (!submitted.has_value()) {
    Release(chunk);
    return submitted.error();
  }
  return true;
}

// Waits for the first chunk of the pass; others may complete before it.
Status ScanPass::AwaitFront() {
  while (!pending_.front().done) FOREBAY_TRY(Reap());
  return {};
}

Status ScanPass::ReapBeforeWaiting() {
  while (options_.gate != nullptr && queue_.in_flight() > 0) FOREBAY_TRY(Reap());
  return {};
}

// Waits for at least one read. A tag is the sequence number of a request, so its distance from
// first_ is its place in pending_.
Status ScanPass::Reap() {
  completions_.clear();
  queue_.Wait(1, completions_);
  for (const io::Completion& completion : completions_) {
    FOREBAY_CHECK(completion.tag >= first_ && completion.tag - first_ < pending_.size());
    Chunk& chunk = pending_[completion.tag - first_];
    Release(chunk);
    const catalog::PlannedObject& object = ObjectOf(chunk);
    if (!completion.bytes.has_value()) {
      return completion.bytes.error().WithContext("reading object '" + object.path +
                                                  "' at offset " + std::to_string(chunk.offset));
    }
    if (*completion.bytes != chunk.length) {
      return Error(ErrorCode::kDataLoss,
                   "object '" + object.path + "' ended at offset " +
                       std::to_string(chunk.offset + *completion.bytes) + " of " +
                       std::to_string(object.bytes) + " while it was read");
    }
    chunk.done = true;
  }
  return {};
}

// Gives the first chunk to the scanner, and publishes the extents that the scanner has cut.
Status ScanPass::FeedFront() {
  Chunk chunk = std::move(pending_.front());
  pending_.pop_front();
  ++first_;
  dataset_.CountGfs(0, 1, chunk.length, 0);
  const ObjectId number = chunk.object;
  const catalog::PlannedObject& object = ObjectOf(chunk);
  const bool is_last = chunk.offset + chunk.length == object.bytes;
  std::vector<catalog::CutExtent> cut;
  const Status scanned = Scan(chunk, is_last, cut);
  // The object may have changed since it was opened. Only a check after the read proves that all
  // bytes that are published, or refused, are those of the object that was listed.
  if (!scanned.has_value() || !cut.empty() || is_last) {
    FOREBAY_TRY(CheckUnchanged(object, *chunk.file));
  }
  if (!scanned.has_value()) {
    // Another node of the job may have refused an object before this one, whose error counts.
    has_refused_ = true;
    hooks_.refused(number, scanned.error());
    return {};
  }
  // Kept, because the scanner may cut an extent that contains these bytes later.
  if (chunk.length > 0) fed_.push_back(std::move(chunk));
  if (!cut.empty()) FOREBAY_TRY(ReapBeforeWaiting());
  for (const catalog::CutExtent& extent : cut) FOREBAY_TRY(Emit(object, extent));
  if (!is_last) {
    DropChunksBefore(scan_->NeededFrom());
    return {};
  }
  // Extents do not cross objects, so all chunks of the object can go.
  DropChunksBefore(~std::uint64_t{0});
  const std::unique_ptr<catalog::CatalogPart> part = scan_->TakePart();
  scan_.reset();
  ++scanned_;
  return hooks_.scanned(number, *part);
}

Status ScanPass::CheckUnchanged(const catalog::PlannedObject& object, const io::File& file) {
  dataset_.CountGfs(0, 0, 0, 1);
  return CheckObjectUnchanged(
      dataset_, {.path = object.path, .bytes = object.bytes, .mtime_ns = object.mtime_ns}, file);
}

Status ScanPass::Scan(const Chunk& chunk, bool is_last, std::vector<catalog::CutExtent>& cut) {
  if (!scan_) scan_.emplace(plan_, chunk.object);
  const std::span<const std::byte> bytes =
      chunk.length == 0 ? std::span<const std::byte>() : chunk.bytes();
  FOREBAY_TRY(scan_->Feed(bytes, cut));
  return is_last ? scan_->End(cut) : Status();
}

// Copies an extent's image from the chunks that contain it, verifies and publishes it.
Status ScanPass::Emit(const catalog::PlannedObject& object, const catalog::CutExtent& cut) {
  const std::uint64_t begin = cut.info.object_offset;
  const std::uint64_t end = begin + cut.info.bytes;
  FOREBAY_ASSIGN(tier::ArenaBlock image, Allocate(cut.info.bytes, object.path));
  std::uint64_t copied = 0;
  for (const Chunk& chunk : fed_) {
    const std::uint64_t from = std::max(begin, chunk.offset);
    const std::uint64_t to = std::min(end, chunk.offset + chunk.length);
    if (from >= to) continue;
    std::memcpy(image.bytes().data() + (from - begin), chunk.bytes().data() + (from - chunk.offset),
                to - from);
    copied += to - from;
  }
  // DropChunksBefore must not have freed a chunk that the extent needs.
  FOREBAY_CHECK(copied == cut.info.bytes);
  const catalog::ObjectInfo info{
      .path = object.path, .bytes = object.bytes, .mtime_ns = object.mtime_ns};
  const tier::ExtentKey key{.dataset = dataset_.hash(),
                            .extent = cut.number,
                            .identity = tier::ExtentIdentity(cut.info, {&info, 1})};
  hooks_.cut(key);
  // The image is there already, from the bytes that the scanner has seen. Only if it does not match
  // the first read is it read again, past the caches of this node.
  bool is_read_again = false;
  const auto read = [&](std::span<std::byte> bytes, bool past_caches) -> Status {
    if (!past_caches) return {};
    is_read_again = true;
    FOREBAY_ASSIGN(const auto file, OpenObjectChecked(dataset_, info));
    file->DropCached();
    return ReadAgain(object, *file, begin, bytes);
  };
  FOREBAY_ASSIGN(tier::ExtentChecksums checksums,
                 ReadExtent(dataset_,
                            {.key = key, .pieces = cut.pieces, .objects = NameObjects({&info, 1})},
                            image.bytes(), read));
  // The image is right now, but the scanner has cut it, and everything after it, by other bytes.
  if (is_read_again) {
    has_misread_ = true;
    return Error(ErrorCode::kUnavailable,
                 "object '" + object.path + "', extent " + std::to_string(cut.number.value()) +
                     ": the bytes that were scanned are not those of its first read, which a "
                     "read past the caches of this node has brought; run 'forebay stage' again");
  }
  FOREBAY_TRY(hooks_.publish(
      {.key = key,
       .extent = std::nullopt,
       .image = std::move(image),
       .checksums = std::move(checksums)}));
  DropChunksBefore(end);
  return {};
}

// In requests as those of the pass, each with a permit of its own. The pass holds none here.
Status ScanPass::ReadAgain(const catalog::PlannedObject& object, io::File& file,
                           std::uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min<std::size_t>(bytes.size(), options_.request_bytes);
    std::optional<RequestGate::Permit> permit;
    if (options_.gate != nullptr) {
      permit = options_.gate->Acquire(priority_, GroupOf(dataset_, object.path));
    }
    const Status read = io::ReadFully(idle_queue_, file, offset, bytes.first(count));
    if (permit) options_.gate->Release(*permit);
    FOREBAY_TRY(read);
    bytes = bytes.subspan(count);
    offset += count;
  }
  return {};
}

// Frees the chunks that end at or before `offset` of the current object: no later extent contains a
// part of them.
void ScanPass::DropChunksBefore(std::uint64_t offset) {
  auto keep = fed_.begin();
  while (keep != fed_.end() && keep->offset + keep->length <= offset) {
    spare_.push_back(std::move(keep->memory));
    ++keep;
  }
  fed_.erase(fed_.begin(), keep);
}

}  // namespace forebay::stage
