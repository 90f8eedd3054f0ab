// Files and directories remember on which side they are, so that a queue sends each operation to
// the side's own fault injector.
#include "server/stage/testing/split_backend.h"

#include <chrono>
#include <utility>
#include <vector>

#include "proto/contract/check.h"

namespace forebay::stage {
namespace {

class SplitFile final : public io::File {
 public:
  SplitFile(std::unique_ptr<io::File> inner, bool is_gfs)
      : inner_(std::move(inner)), is_gfs_(is_gfs) {}
  Result<io::FileInfo> Info() const override { return inner_->Info(); }
  bool is_direct() const override { return inner_->is_direct(); }
  Status Preallocate(std::uint64_t bytes) override { return inner_->Preallocate(bytes); }
  Status Truncate(std::uint64_t bytes) override { return inner_->Truncate(bytes); }
  void DropCached() override { inner_->DropCached(); }
  io::File& inner() { return *inner_; }
  bool is_gfs() const { return is_gfs_; }

 private:
  const std::unique_ptr<io::File> inner_;
  const bool is_gfs_;
};

class SplitDirectory final : public io::Directory {
 public:
  SplitDirectory(std::unique_ptr<io::Directory> inner, bool is_gfs)
      : inner_(std::move(inner)), is_gfs_(is_gfs) {}
  Result<std::unique_ptr<io::File>> Open(std::string_view path, io::OpenMode mode) override {
    FOREBAY_ASSIGN(auto file, inner_->Open(path, mode));
    return std::make_unique<SplitFile>(std::move(file), is_gfs_);
  }
  Result<io::FileInfo> Stat(std::string_view path) override { return inner_->Stat(path); }
  Result<std::vector<io::DirectoryEntry>> List(std::string_view path) override {
    return inner_->List(path);
  }
  Status MakeDirectory(std::string_view path) override { return inner_->MakeDirectory(path); }
  Status Rename(std::string_view from, std::string_view to) override {
    return inner_->Rename(from, to);
  }
  Status Unlink(std::string_view path) override { return inner_->Unlink(path); }
  Status RemoveDirectory(std::string_view path) override {
    return inner_->RemoveDirectory(path);
  }
  Status Sync(std::string_view path) override { return inner_->Sync(path); }
  Result<Space> FreeSpace() override { return inner_->FreeSpace(); }

 private:
  const std::unique_ptr<io::Directory> inner_;
  const bool is_gfs_;
};

// Two queues that look like one. Wait alternates between them in slices of a millisecond.
class SplitQueue final : public io::IoQueue {
 public:
  SplitQueue(std::unique_ptr<io::IoQueue> gfs, std::unique_ptr<io::IoQueue> local)
      : gfs_(std::move(gfs)), local_(std::move(local)) {}

  Status Submit(std::span<const io::Operation> operations) override {
    if (operations.size() > depth() - in_flight()) {
      return Error(ErrorCode::kResourceExhausted, "the queue is full");
    }
    std::vector<io::Operation> gfs;
    std::vector<io::Operation> local;
    for (io::Operation operation : operations) {
      auto& file = static_cast<SplitFile&>(*operation.file);
      operation.file = &file.inner();
      (file.is_gfs() ? gfs : local).push_back(operation);
    }
    // No caller mixes the two in one call, so "all or none" needs no more than this.
    FOREBAY_CHECK(gfs.empty() || local.empty());
    return gfs.empty() ? local_->Submit(local) : gfs_->Submit(gfs);
  }

  std::size_t Wait(std::size_t count_min, std::vector<io::Completion>& completions,
                   std::optional<std::int64_t> timeout_ms) override {
    const std::size_t wanted = std::min(count_min, in_flight());
    const auto begin = std::chrono::steady_clock::now();
    std::size_t count = 0;
    while (true) {
      count += gfs_->Wait(0, completions, 0);
      count += local_->Wait(0, completions, 0);
      if (count >= wanted) return count;
      const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - begin);
      if (timeout_ms.has_value() && passed.count() >= *timeout_ms) return count;
      io::IoQueue& busy = gfs_->in_flight() > 0 ? *gfs_ : *local_;
      count += busy.Wait(1, completions, 1);
    }
  }

  std::size_t in_flight() const override { return gfs_->in_flight() + local_->in_flight(); }
  std::size_t depth() const override { return gfs_->depth(); }

 private:
  const std::unique_ptr<io::IoQueue> gfs_;
  const std::unique_ptr<io::IoQueue> local_;
};

}  // namespace

Result<std::unique_ptr<io::Directory>> SplitBackend::OpenDirectory(std::string_view path) {
  const bool is_gfs = path.starts_with(gfs_path_);
  FOREBAY_ASSIGN(auto directory, (is_gfs ? gfs_ : local_).OpenDirectory(path));
  return std::make_unique<SplitDirectory>(std::move(directory), is_gfs);
}

Result<std::unique_ptr<io::IoQueue>> SplitBackend::CreateQueue(
    const io::QueueOptions& options) {
  FOREBAY_ASSIGN(auto gfs, gfs_.CreateQueue(options));
  FOREBAY_ASSIGN(auto local, local_.CreateQueue(options));
  return std::make_unique<SplitQueue>(std::move(gfs), std::move(local));
}

}  // namespace forebay::stage
