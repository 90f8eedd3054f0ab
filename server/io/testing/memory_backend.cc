// Files, directories and queues over a MemoryFileSystem. A queue runs each operation inside Submit
// and keeps the completion until Wait, which may shuffle them: callers must not rely on their
// order.
#include "server/io/testing/memory_backend.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <typeinfo>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/printable.h"
#include "server/io/posix/path_resolver.h"
#include "server/io/posix/posix_file.h"
#include "server/io/queues/operation_rules.h"
#include "server/io/testing/memory_file_system.h"

namespace forebay::io {
namespace {

using Handle = MemoryFileSystem::Handle;

class MemoryFile final : public File {
 public:
  struct Identity {
    Handle handle;
    OpenMode mode = OpenMode::kRead;
    bool is_direct = false;
  };
  MemoryFile(MemoryFileSystem& files, Identity identity)
      : files_(files), id_(std::move(identity)) {
    files_.CountOpenFile(1);
  }
  ~MemoryFile() override { files_.CountOpenFile(-1); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  Result<FileInfo> Info() const override { return files_.Info(id_.handle); }
  bool is_direct() const override { return id_.is_direct; }
  Status Preallocate(std::uint64_t bytes) override { return Resize(bytes, false); }
  Status Truncate(std::uint64_t bytes) override { return Resize(bytes, true); }

  Result<std::uint64_t> Run(const Operation& operation) {
    switch (operation.kind) {
      case OpKind::kRead:
        if (!can_read()) return FileError(EBADF, "read of a file opened to write");
        return files_.Read(id_.handle, operation.offset, operation.buffer);
      case OpKind::kWrite:
        if (!can_write()) return FileError(EBADF, "write of a file opened to read");
        return files_.Write(id_.handle, id_.mode, operation.offset, operation.data);
      case OpKind::kDataSync: return files_.SyncData(id_.handle);
    }
    return Error(ErrorCode::kInvalidArgument, "unknown operation");
  }

 private:
  bool is_unnamed() const {
    return id_.mode == OpenMode::kUnnamed || id_.mode == OpenMode::kUnnamedDirect;
  }
  bool can_read() const { return !can_write() || is_unnamed(); }
  bool can_write() const {
    return id_.mode != OpenMode::kRead && id_.mode != OpenMode::kReadDirect;
  }
  Status Resize(std::uint64_t bytes, bool may_shrink) {
    if (!can_write()) return FileError(EBADF, "resize of a file opened to read");
    return files_.Resize(id_.handle, bytes, may_shrink);
  }

  MemoryFileSystem& files_;
  const Identity id_;
};

class MemoryDirectory final : public Directory {
 public:
  MemoryDirectory(MemoryFileSystem& files, Handle base, bool has_direct)
      : files_(files), base_(std::move(base)), has_direct_(has_direct) {}

  Result<std::unique_ptr<File>> Open(std::string_view path, OpenMode mode) override {
    const bool is_unnamed = mode == OpenMode::kUnnamed || mode == OpenMode::kUnnamedDirect;
    FOREBAY_TRY(CheckPath(path, is_unnamed ? EmptyPath::kMeansRoot : EmptyPath::kRefused));
    FOREBAY_ASSIGN(Handle handle, files_.OpenFile(base_, path, mode));
    const bool is_direct = has_direct_ && (mode == OpenMode::kReadDirect ||
                                           mode == OpenMode::kCreateDirect ||
                                           mode == OpenMode::kUnnamedDirect);
    return std::make_unique<MemoryFile>(files_,
                                        MemoryFile::Identity{std::move(handle), mode, is_direct});
  }
  Result<FileInfo> Stat(std::string_view path) override {
    FOREBAY_TRY(CheckPath(path, EmptyPath::kMeansRoot));
    FOREBAY_ASSIGN(const Handle handle, files_.Find(base_, path));
    return files_.Info(handle);
  }
  Result<std::vector<DirectoryEntry>> List(std::string_view path) override {
    FOREBAY_TRY(CheckPath(path, EmptyPath::kMeansRoot));
    return files_.List(base_, path);
  }
  Status MakeDirectory(std::string_view path) override {
    FOREBAY_TRY(CheckPath(path, EmptyPath::kRefused));
    return files_.MakeDirectory(base_, path);
  }
  Status Rename(std::string_view from, std::string_view to) override {
    FOREBAY_TRY(CheckPath(from, EmptyPath::kRefused));
    FOREBAY_TRY(CheckPath(to, EmptyPath::kRefused));
    return files_.Rename(base_, from, to);
  }
  Status Unlink(std::string_view path) override {
    FOREBAY_TRY(CheckPath(path, EmptyPath::kRefused));
    return files_.Remove(base_, path, false);
  }
  Status RemoveDirectory(std::string_view path) override {
    FOREBAY_TRY(CheckPath(path, EmptyPath::kRefused));
    return files_.Remove(base_, path, true);
  }
  Status Sync(std::string_view path) override {
    FOREBAY_TRY(CheckPath(path, EmptyPath::kMeansRoot));
    return files_.SyncDirectory(base_, path);
  }
  Result<Space> FreeSpace() override { return files_.FreeSpace(); }

 private:
  MemoryFileSystem& files_;
  const Handle base_;
  const bool has_direct_;
};

class MemoryQueue final : public IoQueue {
 public:
  MemoryQueue(std::size_t depth, std::uint64_t seed) : depth_(depth), random_(seed) {
    done_.reserve(depth);
  }

  Status Submit(std::span<const Operation> operations) override {
    FOREBAY_TRY(CheckOperations(operations, {done_.size(), depth_}));
    for (const Operation& operation : operations) {
      FOREBAY_CHECK(typeid(*operation.file) == typeid(MemoryFile));
      Result<std::uint64_t> bytes = static_cast<MemoryFile*>(operation.file)->Run(operation);
      done_.push_back({operation.tag, std::move(bytes)});
    }
    return {};
  }
  std::size_t Wait(std::size_t, std::vector<Completion>& completions,
                   std::optional<std::int64_t>) override {
    if (random_ != 0) Shuffle();
    const std::size_t count = done_.size();
    std::move(done_.begin(), done_.end(), std::back_inserter(completions));
    done_.clear();
    return count;
  }
  std::size_t in_flight() const override { return done_.size(); }
  std::size_t depth() const override { return depth_; }

 private:
  void Shuffle() {
    for (std::size_t i = done_.size(); i > 1; --i) {
      random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
      std::swap(done_[i - 1], done_[(random_ >> 33) % i]);
    }
    if (random_ == 0) random_ = 1;
  }

  const std::size_t depth_;
  std::uint64_t random_;
  std::vector<Completion> done_;
};

// The part of an absolute path after "/", checked; "" for "/" itself.
Result<std::string_view> BelowRoot(std::string_view path) {
  if (path.empty() || path.front() != '/') {
    return Error(ErrorCode::kInvalidArgument,
                 "root " + Quoted(path) + " must be an absolute path");
  }
  path.remove_prefix(1);
  FOREBAY_TRY(CheckPath(path, EmptyPath::kMeansRoot));
  return path;
}

}  // namespace

MemoryBackend::MemoryBackend(const MemoryOptions& options)
    : options_(options), files_(std::make_unique<MemoryFileSystem>(options.capacity_bytes)) {}

MemoryBackend::~MemoryBackend() { FOREBAY_CHECK(files_->open_file_count() == 0); }

Result<std::unique_ptr<Directory>> MemoryBackend::OpenDirectory(std::string_view path) {
  FOREBAY_ASSIGN(const std::string_view relative, BelowRoot(path));
  FOREBAY_ASSIGN(Handle base, files_->Find(files_->Root(), relative));
  if (!base.node->is_directory) return FileError(ENOTDIR, "open root " + Quoted(path));
  return std::make_unique<MemoryDirectory>(*files_, std::move(base), options_.has_direct);
}

Result<std::unique_ptr<IoQueue>> MemoryBackend::CreateQueue(const QueueOptions& options) {
  FOREBAY_TRY(CheckQueueOptions(options));
  return std::make_unique<MemoryQueue>(options.depth, options_.completion_seed);
}

Status MemoryBackend::AddDirectory(std::string_view path) {
  FOREBAY_ASSIGN(const std::string_view relative, BelowRoot(path));
  files_->AddDirectory(relative);
  return {};
}

Status MemoryBackend::AddFile(std::string_view path, std::span<const std::byte> bytes) {
  FOREBAY_ASSIGN(const std::string_view relative, BelowRoot(path));
  files_->AddFile(relative, bytes);
  return {};
}

Result<std::vector<std::byte>> MemoryBackend::FileBytes(std::string_view path) const {
  FOREBAY_ASSIGN(const std::string_view relative, BelowRoot(path));
  return files_->FileBytes(relative);
}

Status MemoryBackend::FlipBit(std::string_view path, std::uint64_t bit_index) {
  FOREBAY_ASSIGN(const std::string_view relative, BelowRoot(path));
  return files_->FlipBit(relative, bit_index);
}

void MemoryBackend::Crash(const CrashOptions& options) { files_->Crash(options); }

void MemoryBackend::SetCapacity(std::uint64_t capacity_bytes) {
  files_->SetCapacity(capacity_bytes);
}

std::size_t MemoryBackend::open_file_count() const { return files_->open_file_count(); }

std::size_t MemoryBackend::open_file_peak() const { return files_->open_file_peak(); }

}  // namespace forebay::io
