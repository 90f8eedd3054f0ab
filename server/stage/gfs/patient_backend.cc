// Blocking calls of files and directories are repeated in place (Persist). Reads are asynchronous:
// PatientQueue keeps a failed read in its slot and submits it again when its pause is over. Both
// ask GfsPatience whether to go on, and both register the call in GfsCalls while it is under way.
#include "server/stage/gfs/patient_backend.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/failure.h"
#include "server/io/log.h"

namespace forebay::stage {
namespace {

// What every repeated call uses.
struct CallKeepers {
  GfsPatience& patience;
  GfsCalls& calls;
  GfsThrottle& throttle;
};

// The name of a call and its object, for messages; and whether a try counts as an open.
struct CallName {
  std::string_view what;
  GfsCalls::Object object;
  bool is_open = false;
};

// Calls `call` until it succeeds or its error is final. Calls `reopen`, which returns a Status,
// before a retry that needs a new handle; if that fails, its error is the result of this try. Both
// get the call that is under way, which must not be late while they wait for the throttle.
template <typename Call, typename Reopen>
auto Persist(const CallKeepers& keepers, const CallName& name, Call call, Reopen reopen)
    -> decltype(call(std::declval<GfsCalls::Call&>())) {
  GfsPatience& patience = keepers.patience;
  const auto admit = [&](GfsCalls::Call* under_way) {
    return name.is_open ? keepers.throttle.Take(Cap::kOpens, 1, under_way) : Status();
  };
  // Before the call is registered: it is not late while it waits for its turn.
  FOREBAY_TRY(admit(nullptr));
  GfsCalls::Call under_way(keepers.calls, name.what, name.object);
  GfsPatience::Attempt attempt;
  Status opened;
  for (;;) {
    auto result =
        opened.has_value() ? call(under_way) : decltype(call(under_way))(opened.error());
    if (result.has_value()) {
      patience.Succeeded(attempt);
      return result;
    }
    const std::optional<std::int64_t> delay_ms = patience.DelayMs(attempt, result.error());
    if (!delay_ms) return patience.MakeFinal(attempt, std::move(result.error()));
    // The call stays registered during the pause: it is late if it takes too long with its retries.
    under_way.Pause();
    patience.Sleep(*delay_ms);
    opened = admit(&under_way);
    under_way.TryAgain();
    // Opening is a call to the GFS, too, and belongs to the next try: it waits for the pause, and
    // comes after TryAgain, so that GfsCalls reports it if it hangs. If it fails for a time, the
    // old handle stays, and the try after that uses it.
    const bool needs_reopen = RemedyOf(FailureSource::kGfs, result.error()) == Remedy::kReopen;
    if (opened.has_value() && needs_reopen) opened = reopen(under_way);
  }
}

// The root directory of a data set, which all its files share. After a remount its handle stays
// stale for ever, so it is opened again by its path. Between unmounting and mounting, the directory
// beneath the mount point has this path. It is empty, so a call that used it would say for good
// that an object does not exist. It lies on another file system, nearly always one of another type.
// The device number (st_dev) would not do in place of the type: it may change with every mount.
class GfsRoot {
 public:
  // Without `directory` (null), the first call that needs the directory opens it. `under_way`, in
  // the functions: the call that they belong to; null: it is not registered.
  GfsRoot(io::IoBackend& backend, GfsThrottle& throttle, std::string path,
          std::optional<std::uint64_t> file_system_type,
          std::unique_ptr<io::Directory> directory)
      : backend_(backend),
        throttle_(throttle),
        path_(std::move(path)),
        file_system_type_(file_system_type),
        directory_(std::move(directory)) {}

  Result<std::shared_ptr<io::Directory>> directory(GfsCalls::Call* under_way = nullptr) {
    {
      const MutexLock lock(mutex_);
      if (directory_) return directory_;
    }
    FOREBAY_ASSIGN(Opened opened, Open(under_way));
    return Take(std::move(opened));
  }
  // The name of a call about `path`, which must outlive the call.
  CallName Named(std::string_view what, std::string_view path) const {
    return {.what = what, .object = {.root = path_, .path = path}};
  }
  // Keeps the old handle if opening fails. That is no error: the path may be missing while the file
  // system is mounted again, and a call with the old handle fails in a way that leads here again.
  // An error that leads here again, too, if the path is on a file system of another type.
  Status Reopen(GfsCalls::Call& under_way) {
    Result<Opened> opened = Open(&under_way);
    if (!opened.has_value() || !opened->file_system_type) return {};
    if (const auto first = first_type(); first && *opened->file_system_type != *first) {
      return Error(ErrorCode::kUnavailable,
                   "'" + path_ + "' is on a file system of another type than when it was first "
                   "opened: the GFS is not mounted there",
                   ESTALE);
    }
    Take(std::move(*opened));
    return {};
  }

 private:
  struct Opened {
    std::shared_ptr<io::Directory> directory;
    std::optional<std::uint64_t> file_system_type;
  };

  // Without the lock: the call may block for long, and others use the old handle meanwhile.
  Result<Opened> Open(GfsCalls::Call* under_way) {
    FOREBAY_TRY(throttle_.Take(Cap::kOpens, 1, under_way));
    FOREBAY_ASSIGN(std::shared_ptr<io::Directory> directory, backend_.OpenDirectory(path_));
    Opened opened{.directory = std::move(directory), .file_system_type = {}};
    if (const auto space = opened.directory->FreeSpace()) {
      opened.file_system_type = space->file_system_type;
    }
    return opened;
  }
  std::shared_ptr<io::Directory> Take(Opened opened) {
    const MutexLock lock(mutex_);
    // Swapped, so that the old handle is closed after the lock is released.
    directory_.swap(opened.directory);
    if (!file_system_type_) file_system_type_ = opened.file_system_type;
    return directory_;
  }
  std::optional<std::uint64_t> first_type() const {
    const MutexLock lock(mutex_);
    return file_system_type_;
  }

  io::IoBackend& backend_;
  GfsThrottle& throttle_;
  const std::string path_;
  mutable Mutex mutex_;
  // At the first opening; unset: unknown, so any is accepted.
  std::optional<std::uint64_t> file_system_type_ FOREBAY_GUARDED_BY(mutex_);
  std::shared_ptr<io::Directory> directory_ FOREBAY_GUARDED_BY(mutex_);
};

// A file of the GFS. Its handle may be replaced by Reopen; operations under way keep the one that
// they began with.
class PatientFile final : public io::File {
 public:
  PatientFile(std::shared_ptr<GfsRoot> root, const CallKeepers& keepers, std::string path,
              io::OpenMode mode, std::shared_ptr<io::File> file, const io::FileInfo& info)
      : root_(std::move(root)),
        keepers_(keepers),
        path_(std::move(path)),
        mode_(mode),
        is_direct_(file->is_direct()),
        opened_as_(info),
        file_(std::move(file)) {}

  Result<io::FileInfo> Info() const override {
    return Persist(
        keepers_, Named("stat"), [&](GfsCalls::Call&) { return handle()->Info(); },
        [&](GfsCalls::Call& under_way) { return Reopen(under_way); });
  }
  bool is_direct() const override { return is_direct_; }
  // The daemon opens files of the GFS only to read them, so calls that change a file are not
  // repeated.
  Status Preallocate(std::uint64_t bytes) override { return handle()->Preallocate(bytes); }
  Status Truncate(std::uint64_t bytes) override { return handle()->Truncate(bytes); }

  void DropCached() override { handle()->DropCached(); }

  std::shared_ptr<io::File> handle() const {
    const MutexLock lock(mutex_);
    return file_;
  }
  CallName Named(std::string_view what) const { return root_->Named(what, path_); }

  // Opens the same object again. kFailedPrecondition if another object has its name now, because
  // bytes of the two must not be mixed.
  Status Reopen(GfsCalls::Call& under_way) const {
    FOREBAY_ASSIGN(std::shared_ptr<io::Directory> root, root_->directory(&under_way));
    FOREBAY_TRY(keepers_.throttle.Take(Cap::kOpens, 1, &under_way));
    auto opened = root->Open(path_, mode_);
    if (!opened.has_value()) {
      // The root may be stale too.
      FOREBAY_TRY(root_->Reopen(under_way));
      FOREBAY_ASSIGN(root, root_->directory(&under_way));
      FOREBAY_TRY(keepers_.throttle.Take(Cap::kOpens, 1, &under_way));
      opened = root->Open(path_, mode_);
    }
    FOREBAY_TRY(opened);
    FOREBAY_ASSIGN(const io::FileInfo now, (*opened)->Info());
    // Direct I/O must not change either: callers have aligned their reads for the handle as they
    // knew it.
    if (now.bytes != opened_as_.bytes || now.mtime_ns != opened_as_.mtime_ns ||
        (*opened)->is_direct() != is_direct_) {
      return Error(ErrorCode::kFailedPrecondition,
                   "'" + path_ + "' has another size or modification time since the GFS was "
                   "remounted; run 'forebay stage --rebuild'");
    }
    // Swapped, so that the old handle is closed after the lock is released.
    std::shared_ptr<io::File> fresh = std::move(*opened);
    const MutexLock lock(mutex_);
    file_.swap(fresh);
    return {};
  }

 private:
  const std::shared_ptr<GfsRoot> root_;
  const CallKeepers keepers_;
  const std::string path_;
  const io::OpenMode mode_;
  const bool is_direct_;
  const io::FileInfo opened_as_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<io::File> file_ FOREBAY_GUARDED_BY(mutex_);
};

// A directory of the GFS. Calls that read are repeated; the daemon writes nothing to the GFS, so
// the others are passed on.
class PatientDirectory final : public io::Directory {
  template <typename Call>
  auto Retried(std::string_view what, std::string_view path, Call call) {
    using Answer = decltype(call(std::declval<io::Directory&>()));
    CallName name = root_->Named(what, path);
    name.is_open = true;
    return Persist(
        keepers_, name,
        [&](GfsCalls::Call& under_way) -> Answer {
          FOREBAY_ASSIGN(const std::shared_ptr<io::Directory> directory,
                         root_->directory(&under_way));
          return call(*directory);
        },
        [&](GfsCalls::Call& under_way) { return root_->Reopen(under_way); });
  }

 public:
  PatientDirectory(std::shared_ptr<GfsRoot> root, const CallKeepers& keepers)
      : root_(std::move(root)), keepers_(keepers) {}

  Result<std::unique_ptr<io::File>> Open(std::string_view path, io::OpenMode mode) override {
    return Retried("open", path, [&](io::Directory& directory)
                                     -> Result<std::unique_ptr<io::File>> {
      FOREBAY_ASSIGN(std::unique_ptr<io::File> file, directory.Open(path, mode));
      FOREBAY_ASSIGN(const io::FileInfo info, file->Info());
      return std::make_unique<PatientFile>(root_, keepers_, std::string(path), mode,
                                           std::move(file), info);
    });
  }
  Result<io::FileInfo> Stat(std::string_view path) override {
    return Retried("stat", path,
                   [&](io::Directory& directory) { return directory.Stat(path); });
  }
  Result<std::vector<io::DirectoryEntry>> List(std::string_view path) override {
    return Retried("list", path,
                   [&](io::Directory& directory) { return directory.List(path); });
  }
  Status MakeDirectory(std::string_view path) override {
    FOREBAY_ASSIGN(const auto root, root_->directory());
    return root->MakeDirectory(path);
  }
  Status Rename(std::string_view from, std::string_view to) override {
    FOREBAY_ASSIGN(const auto root, root_->directory());
    return root->Rename(from, to);
  }
  Status Unlink(std::string_view path) override {
    FOREBAY_ASSIGN(const auto root, root_->directory());
    return root->Unlink(path);
  }
  Status RemoveDirectory(std::string_view path) override {
    FOREBAY_ASSIGN(const auto root, root_->directory());
    return root->RemoveDirectory(path);
  }
  Status Sync(std::string_view path) override {
    FOREBAY_ASSIGN(const auto root, root_->directory());
    return root->Sync(path);
  }
  Result<Space> FreeSpace() override {
    return Retried("statfs", {},
                   [](io::Directory& directory) { return directory.FreeSpace(); });
  }

 private:
  const std::shared_ptr<GfsRoot> root_;
  const CallKeepers keepers_;
};

// A queue for operations on any file. A read of a PatientFile that fails with a transient error
// stays in its slot and is submitted again when its pause is over. Other operations are passed on.
// A slot's index is the tag of the inner operation.
class PatientQueue final : public io::IoQueue {
 public:
  PatientQueue(std::unique_ptr<io::IoQueue> inner, const CallKeepers& keepers)
      : patience_(keepers.patience),
        calls_(keepers.calls),
        throttle_(keepers.throttle),
        slots_(inner->depth()),
        inner_(std::move(inner)) {
    for (std::size_t i = slots_.size(); i > 0; --i) free_.push_back(i - 1);
  }

  Status Submit(std::span<const io::Operation> operations) override {
    if (operations.size() > free_.size()) {
      return Error(ErrorCode::kResourceExhausted,
                   "the queue holds " + std::to_string(in_flight()) + " of " +
                       std::to_string(depth()) + " operations; " +
                       std::to_string(operations.size()) + " more do not fit");
    }
    // Before anything is registered: a read is not late while it waits for its turn.
    for (const io::Operation& operation : operations) FOREBAY_TRY(Admit(operation, nullptr));
    passed_.clear();
    for (const io::Operation& operation : operations) {
      const std::size_t index = free_.back();
      free_.pop_back();
      Slot& slot = slots_[index];
      slot.operation = operation;
      slot.file = OfGfs(operation);
      if (slot.file != nullptr) {
        const CallName name = slot.file->Named(kReadCall);
        slot.call.emplace(calls_, name.what, name.object);
      }
      passed_.push_back(InnerOf(index));
    }
    const Status submitted = inner_->Submit(passed_);
    if (!submitted.has_value()) {
      for (const io::Operation& operation : passed_) Release(operation.tag);
    }
    return submitted;
  }

  std::size_t Wait(std::size_t count_min, std::vector<io::Completion>& completions,
                   std::optional<std::int64_t> timeout_ms) override {
    // Paused reads are in flight for the caller, but not in the inner queue. So the wait in the
    // inner queue ends when the next pause does.
    const std::size_t wanted = std::min(count_min, in_flight());
    const std::int64_t begun_ns = GfsPatience::NowNs();
    std::size_t count = 0;
    for (;;) {
      count += ResubmitDue(completions);
      std::optional<std::int64_t> pause_ms = timeout_ms;
      if (pause_ms) *pause_ms -= std::min(*pause_ms, (GfsPatience::NowNs() - begun_ns) / kNsPerMs);
      // Never wait beyond the time at which a paused read is to be submitted again.
      if (const auto due = MsUntilDue()) pause_ms = pause_ms ? std::min(*pause_ms, *due) : *due;
      const std::size_t missing = wanted - std::min(wanted, count);
      const std::size_t from_inner =
          std::min(paused_.empty() ? missing : std::min<std::size_t>(missing, 1),
                   inner_->in_flight());
      if (inner_->in_flight() > 0) {
        done_.clear();
        // If no completion is missing, those that are there are collected without waiting.
        inner_->Wait(from_inner, done_, from_inner > 0 ? pause_ms : 0);
        for (io::Completion& completion : done_) count += Complete(completion, completions);
      } else if (missing > 0 && pause_ms) {
        // All operations are paused. Stop ends this sleep, and ResubmitDue then completes all of
        // them.
        patience_.Sleep(*pause_ms);
      }
      // The inner queue may have answered with failures only, which Complete paused; then go on.
      if (count >= wanted) return count;
      if (timeout_ms && (GfsPatience::NowNs() - begun_ns) / kNsPerMs >= *timeout_ms) return count;
    }
  }

  std::size_t in_flight() const override { return slots_.size() - free_.size(); }
  std::size_t depth() const override { return slots_.size(); }

 private:
  struct Slot {
    io::Operation operation;
    PatientFile* file = nullptr;         // null: a file of the local node
    std::shared_ptr<io::File> handle;    // the handle of `file` that the operation uses
    std::optional<GfsCalls::Call> call;  // set if `file` is
    GfsPatience::Attempt attempt;
    std::int64_t due_ns = 0;
    bool needs_reopen = false;
    std::optional<Error> error;  // of the last try
  };

  // The file, if it is one of the GFS. Those of the local node are no PatientFiles: their errors
  // are not repeated, and they do not count.
  static PatientFile* OfGfs(const io::Operation& operation) {
    return dynamic_cast<PatientFile*>(operation.file);
  }
  Status Admit(const io::Operation& operation, GfsCalls::Call* under_way) {
    if (!throttle_.IsCapped(Cap::kBytes) || OfGfs(operation) == nullptr) return {};
    return throttle_.Take(Cap::kBytes, static_cast<double>(operation.buffer.size()), under_way);
  }

  io::Operation InnerOf(std::size_t index) {
    Slot& slot = slots_[index];
    io::Operation inner = slot.operation;
    // The slot keeps the handle open until the operation has ended, also if Reopen replaces it.
    if (slot.file != nullptr) {
      slot.handle = slot.file->handle();
      inner.file = slot.handle.get();
    }
    inner.tag = index;
    return inner;
  }

  void Release(std::size_t index) {
    Slot& slot = slots_[index];
    slot.operation = {};
    slot.file = nullptr;
    slot.handle.reset();
    slot.call.reset();
    slot.attempt = {};
    slot.error.reset();
    free_.push_back(index);
  }

  // Completes the operation, or pauses it until its next try. Returns the number of completed ones.
  std::size_t Complete(io::Completion& completion, std::vector<io::Completion>& completions) {
    const std::size_t index = completion.tag;
    Slot& slot = slots_[index];
    if (slot.file != nullptr && !completion.bytes.has_value()) {
      const Error& error = completion.bytes.error();
      if (const auto delay_ms = patience_.DelayMs(slot.attempt, error)) {
        slot.due_ns = GfsPatience::NowNs() + *delay_ms * kNsPerMs;
        slot.needs_reopen = RemedyOf(FailureSource::kGfs, error) == Remedy::kReopen;
        slot.error = error;
        slot.call->Pause();
        paused_.push_back(index);
        return 0;
      }
      completion.bytes = patience_.MakeFinal(slot.attempt, std::move(completion.bytes.error()));
    } else {
      patience_.Succeeded(slot.attempt);
    }
    completions.push_back({.tag = slot.operation.tag, .bytes = std::move(completion.bytes)});
    Release(index);
    return 1;
  }

  std::optional<std::int64_t> MsUntilDue() const {
    if (paused_.empty()) return std::nullopt;
    std::int64_t due_ns = slots_[paused_.front()].due_ns;
    // A queue has few slots, so a search costs less than an ordered list.
    for (const std::size_t index : paused_) due_ns = std::min(due_ns, slots_[index].due_ns);
    return std::max<std::int64_t>(0, (due_ns - GfsPatience::NowNs() + kNsPerMs - 1) / kNsPerMs);
  }

  // Submits paused reads again whose pause is over. Once the daemon stops, completes all of them
  // with their last error instead.
  std::size_t ResubmitDue(std::vector<io::Completion>& completions) {
    std::size_t ended = 0;
    const std::int64_t now_ns = GfsPatience::NowNs();
    const bool is_stopped = !paused_.empty() && patience_.is_stopping();
    due_.clear();
    // Due slots leave the list before they are tried, because Complete may put them on it again.
    std::erase_if(paused_, [&](std::size_t index) {
      const bool is_due = is_stopped || slots_[index].due_ns <= now_ns;
      if (is_due) due_.push_back(index);
      return is_due;
    });
    for (const std::size_t index : due_) {
      Slot& slot = slots_[index];
      Status status;
      // Once the daemon stops nothing is reopened: the GFS could keep the daemon waiting.
      if (is_stopped) status = *slot.error;
      if (status.has_value()) status = Admit(slot.operation, &*slot.call);
      slot.call->TryAgain();
      if (status.has_value() && slot.needs_reopen) status = slot.file->Reopen(*slot.call);
      if (status.has_value()) {
        const io::Operation inner = InnerOf(index);
        status = inner_->Submit({&inner, 1});
      }
      if (status.has_value()) continue;
      // A failed reopen or submission is one more failure of the read: Complete pauses it again, or
      // ends it. Once the daemon stops, DelayMs allows no more tries, so it is ended.
      io::Completion failed{.tag = index, .bytes = status.error()};
      ended += Complete(failed, completions);
    }
    return ended;
  }

  GfsPatience& patience_;
  GfsCalls& calls_;
  GfsThrottle& throttle_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
  std::vector<std::size_t> paused_;  // slots between two tries
  std::vector<std::size_t> due_;
  std::vector<io::Operation> passed_;
  std::vector<io::Completion> done_;
  const std::unique_ptr<io::IoQueue> inner_;  // destroyed first: its operations use the slots
};

}  // namespace

Result<std::unique_ptr<io::Directory>> PatientBackend::OpenGfsDirectory(std::string_view path) {
  std::unique_ptr<io::Directory> directory;
  std::optional<std::uint64_t> file_system_type;
  {
    const GfsCalls::Call under_way(calls_, "open", {.root = path, .path = {}});
    Result<std::unique_ptr<io::Directory>> opened = inner_.OpenDirectory(path);
    if (opened.has_value()) {
      directory = std::move(*opened);
      // Only a later remount needs it, so an error here is no reason to refuse the data set.
      if (const auto space = directory->FreeSpace()) file_system_type = space->file_system_type;
    } else if (RemedyOf(FailureSource::kGfs, opened.error()) == Remedy::kFail) {
      return std::move(opened.error());
    } else {
      // Whoever starts during an outage waits for the end of it as those do that started before.
      log::Warn("the GFS fails: {}; the first call that needs the directory opens it",
                opened.error().message());
    }
  }
  auto root = std::make_shared<GfsRoot>(inner_, throttle_, std::string(path), file_system_type,
                                        std::move(directory));
  return std::make_unique<PatientDirectory>(std::move(root),
                                            CallKeepers{patience_, calls_, throttle_});
}

Result<std::unique_ptr<io::IoQueue>> PatientBackend::CreateQueue(
    const io::QueueOptions& options) {
  FOREBAY_ASSIGN(std::unique_ptr<io::IoQueue> inner, inner_.CreateQueue(options));
  return std::make_unique<PatientQueue>(std::move(inner),
                                        CallKeepers{patience_, calls_, throttle_});
}

}  // namespace forebay::stage
