// Wraps files, directories and queues of another back end. Calls of files and directories answer at
// once, so a fault is an error or a wait. Operations of a queue keep a slot from Submit to Deliver:
// a fault changes what is passed on (short, torn, flipped), what is reported, or when it is
// delivered.
#include "server/io/testing/faulty_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <typeinfo>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/io/aligned_buffer.h"
#include "server/io/queues/operation_rules.h"

namespace forebay::io {
namespace {

using Decision = FaultInjector::Decision;

// For calls that answer at once: returns the injected error, if any. A stall blocks here.
Status InjectFault(FaultInjector& injector, IoCall call, std::string_view path = {}) {
  const std::optional<Decision> decision = injector.Decide(call, path);
  if (!decision.has_value()) return {};
  if (decision->kind == FaultKind::kStall) {
    injector.AwaitRelease(decision->stall_ticket, std::nullopt);
    return {};
  }
  return InjectedError(*decision);
}

class FaultyFile final : public File {
 public:
  FaultyFile(std::unique_ptr<File> inner, FaultInjector& injector, std::string_view path)
      : inner_(std::move(inner)), injector_(injector), path_(path) {}

  Result<FileInfo> Info() const override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kInfo, path_));
    return inner_->Info();
  }
  bool is_direct() const override { return inner_->is_direct(); }
  Status Preallocate(std::uint64_t bytes) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kResize));
    return inner_->Preallocate(bytes);
  }
  Status Truncate(std::uint64_t bytes) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kResize));
    return inner_->Truncate(bytes);
  }
  void DropCached() override { inner_->DropCached(); }
  File& inner() { return *inner_; }
  const std::string& path() const { return path_; }

 private:
  const std::unique_ptr<File> inner_;
  FaultInjector& injector_;
  const std::string path_;
};

class FaultyDirectory final : public Directory {
 public:
  FaultyDirectory(std::unique_ptr<Directory> inner, FaultInjector& injector)
      : inner_(std::move(inner)), injector_(injector) {}

  Result<std::unique_ptr<File>> Open(std::string_view path, OpenMode mode) override {
    const bool is_read = mode == OpenMode::kRead || mode == OpenMode::kReadDirect;
    FOREBAY_TRY(InjectFault(injector_, is_read ? IoCall::kOpen : IoCall::kCreate, path));
    FOREBAY_ASSIGN(std::unique_ptr<File> file, inner_->Open(path, mode));
    return std::make_unique<FaultyFile>(std::move(file), injector_, path);
  }
  Result<FileInfo> Stat(std::string_view path) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kStat, path));
    return inner_->Stat(path);
  }
  Result<std::vector<DirectoryEntry>> List(std::string_view path) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kList, path));
    return inner_->List(path);
  }
  Status MakeDirectory(std::string_view path) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kMakeDirectory));
    return inner_->MakeDirectory(path);
  }
  Status Rename(std::string_view from, std::string_view to) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kRename));
    return inner_->Rename(from, to);
  }
  Status Unlink(std::string_view path) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kRemove));
    return inner_->Unlink(path);
  }
  Status RemoveDirectory(std::string_view path) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kRemove));
    return inner_->RemoveDirectory(path);
  }
  Status Sync(std::string_view path) override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kSyncDirectory));
    return inner_->Sync(path);
  }
  Result<Space> FreeSpace() override {
    FOREBAY_TRY(InjectFault(injector_, IoCall::kFreeSpace));
    return inner_->FreeSpace();
  }

 private:
  const std::unique_ptr<Directory> inner_;
  FaultInjector& injector_;
};

IoCall CallOf(OpKind kind) {
  switch (kind) {
    case OpKind::kRead: return IoCall::kRead;
    case OpKind::kWrite: return IoCall::kWrite;
    case OpKind::kDataSync: return IoCall::kDataSync;
  }
  return IoCall::kRead;
}

// Half of a transfer, rounded down to a block if the file is direct, as a device would stop.
std::size_t HalfOf(const Operation& operation) {
  const std::size_t half = OperationBytes(operation) / 2;
  return operation.file->is_direct() ? half - half % limits::kIoAlignmentBytes : half;
}

void FlipBit(std::span<std::byte> bytes, std::uint64_t random) {
  if (bytes.empty()) return;
  bytes[(random >> 3) % bytes.size()] ^= static_cast<std::byte>(1U << (random & 7));
}

class FaultyQueue final : public IoQueue {
 public:
  FaultyQueue(std::unique_ptr<IoQueue> inner, FaultInjector& injector)
      : injector_(injector),
        slots_(inner->depth()),
        done_(inner->depth()),
        inner_(std::move(inner)) {
    for (std::size_t i = slots_.size(); i > 0; --i) free_.push_back(i - 1);
  }

  Status Submit(std::span<const Operation> operations) override {
    FOREBAY_TRY(CheckOperations(operations, {in_flight(), depth()}));
    std::vector<Operation> passed;
    for (const Operation& operation : operations) {
      const std::size_t index = free_.back();
      free_.pop_back();
      FOREBAY_CHECK(typeid(*operation.file) == typeid(FaultyFile));
      const std::string& path = static_cast<const FaultyFile&>(*operation.file).path();
      slots_[index] = {operation, injector_.Decide(CallOf(operation.kind), path), {}, false};
      Prepare(index, passed);
    }
    const Status status = inner_->Submit(passed);
    if (!status.has_value()) {
      // The inner queue took no operation, so each of them completes with its error.
      for (const Operation& operation : passed) Finish(operation.tag, status.error());
    }
    return {};
  }

  std::size_t Wait(std::size_t count_min, std::vector<Completion>& completions,
                   std::optional<std::int64_t> timeout_ms) override {
    const std::size_t wanted = std::min(count_min, in_flight());
    const auto begin = std::chrono::steady_clock::now();
    std::size_t count = 0;
    while (true) {
      Collect(0, 0);
      count += Deliver(completions);
      if (count >= wanted) return count;
      // A stall can be released at any time, and only Deliver notices; so the waits are short while
      // an operation is held.
      std::int64_t slice_ms = held_.empty() ? 1'000 : 1;
      if (timeout_ms.has_value()) {
        const std::int64_t passed_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                           std::chrono::steady_clock::now() - begin)
                                           .count();
        if (passed_ms >= *timeout_ms) return count;
        slice_ms = std::min(slice_ms, *timeout_ms - passed_ms);
      }
      if (inner_->in_flight() > 0) {
        Collect(1, slice_ms);
      } else {
        injector_.AwaitRelease(slots_[held_.front()].decision->stall_ticket, slice_ms);
      }
    }
  }

  std::size_t in_flight() const override { return slots_.size() - free_.size(); }
  std::size_t depth() const override { return slots_.size(); }

 private:
  struct Slot {
    Operation operation;
    std::optional<Decision> decision;
    AlignedBuffer changed;      // written in place of the caller's bytes
    bool reports_full = false;  // a torn write reports that it wrote all bytes
  };

  // Adds the operation, changed by its fault, to `passed`; or completes it at once with an error.
  void Prepare(std::size_t index, std::vector<Operation>& passed) {
    Slot& slot = slots_[index];
    Operation inner = slot.operation;
    inner.file = &static_cast<FaultyFile*>(inner.file)->inner();
    inner.tag = index;
    if (slot.decision.has_value()) {
      const FaultKind kind = slot.decision->kind;
      if (kind == FaultKind::kEio || kind == FaultKind::kEnospc || kind == FaultKind::kErofs ||
          kind == FaultKind::kInterrupted || kind == FaultKind::kStale) {
        return Finish(index, InjectedError(*slot.decision));
      }
      if (kind == FaultKind::kShort) {
        inner.buffer = inner.buffer.first(std::min(inner.buffer.size(), HalfOf(slot.operation)));
      }
      if (inner.kind == OpKind::kWrite &&
          (kind == FaultKind::kShort || kind == FaultKind::kTornWrite)) {
        inner.data = inner.data.first(HalfOf(slot.operation));
        slot.reports_full = kind == FaultKind::kTornWrite;
      }
      if (kind == FaultKind::kBitFlip && inner.kind == OpKind::kWrite && !inner.data.empty()) {
        Result<AlignedBuffer> copy = AlignedBuffer::Create(inner.data.size());
        FOREBAY_CHECK(copy.has_value());
        slot.changed = std::move(*copy);
        std::memcpy(slot.changed.data(), inner.data.data(), inner.data.size());
        FlipBit(slot.changed.span().first(inner.data.size()), slot.decision->random);
        inner.data = std::as_const(slot.changed).span().first(inner.data.size());
      }
    }
    passed.push_back(inner);
  }

  // Takes completions of the inner queue and applies the faults that change an answer.
  void Collect(std::size_t count_min, std::int64_t timeout_ms) {
    std::vector<Completion> done;
    inner_->Wait(count_min, done, timeout_ms);
    for (Completion& completion : done) {
      const Slot& slot = slots_[completion.tag];
      if (slot.decision.has_value() && completion.bytes.has_value()) {
        if (slot.reports_full) completion.bytes = std::uint64_t{slot.operation.data.size()};
        if (slot.decision->kind == FaultKind::kBitFlip) {
          FlipBit(slot.operation.buffer.first(
                      slot.operation.kind == OpKind::kRead ? *completion.bytes : 0),
                  slot.decision->random);
        }
      }
      Finish(completion.tag, std::move(completion.bytes));
    }
  }

  // Keeps an answer until Deliver; a stalled one until it is released.
  void Finish(std::size_t index, Result<std::uint64_t> bytes) {
    const Slot& slot = slots_[index];
    const bool is_stalled =
        slot.decision.has_value() && slot.decision->kind == FaultKind::kStall;
    (is_stalled ? held_ : ready_).push_back(index);
    done_[index] = {slot.operation.tag, std::move(bytes)};
  }

  std::size_t Deliver(std::vector<Completion>& completions) {
    const auto still_held = std::stable_partition(
        held_.begin(), held_.end(), [this](std::size_t index) {
          return injector_.IsReleased(slots_[index].decision->stall_ticket);
        });
    ready_.insert(ready_.end(), held_.begin(), still_held);
    held_.erase(held_.begin(), still_held);
    for (const std::size_t index : ready_) {
      completions.push_back(std::move(done_[index]));
      slots_[index] = {};
      free_.push_back(index);
    }
    const std::size_t count = ready_.size();
    ready_.clear();
    return count;
  }

  FaultInjector& injector_;
  std::vector<Slot> slots_;
  std::vector<Completion> done_;
  std::vector<std::size_t> free_;
  std::vector<std::size_t> ready_;
  std::vector<std::size_t> held_;
  // The last member, so that it is destroyed first: its destructor waits for operations that still
  // read the changed buffers.
  const std::unique_ptr<IoQueue> inner_;
};

}  // namespace

FaultyBackend::FaultyBackend(IoBackend& inner, FaultInjector& injector)
    : inner_(inner), injector_(injector), name_("faulty(" + std::string(inner.name()) + ")") {}

Result<std::unique_ptr<Directory>> FaultyBackend::OpenDirectory(std::string_view path) {
  FOREBAY_ASSIGN(std::unique_ptr<Directory> directory, inner_.OpenDirectory(path));
  return std::make_unique<FaultyDirectory>(std::move(directory), injector_);
}

Result<std::unique_ptr<IoQueue>> FaultyBackend::CreateQueue(const QueueOptions& options) {
  FOREBAY_ASSIGN(std::unique_ptr<IoQueue> queue, inner_.CreateQueue(options));
  return std::make_unique<FaultyQueue>(std::move(queue), injector_);
}

}  // namespace forebay::io
