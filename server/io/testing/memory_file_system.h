// MemoryFileSystem: the state behind MemoryBackend. Each node has a live state and a durable one; a
// sync copies live to durable, and a simulated crash copies durable to live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/io_backend.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::io {

// A file or directory. `live` is what running programs see, `durable` is what remains after a
// crash. Guarded by the mutex of its file system.
struct MemoryNode {
  using Bytes = std::vector<std::byte>;
  using Children = std::map<std::string, std::shared_ptr<MemoryNode>, std::less<>>;

  bool is_directory = false;
  bool is_linked = true;  // reachable in the live tree, so its bytes count against capacity
  std::int64_t mtime_ns = 0;
  Bytes live;
  Bytes durable;
  std::uint64_t dirty_begin = 0;  // the part of `live` that may differ from `durable`
  std::uint64_t dirty_end = 0;
  Children live_children;
  Children durable_children;
};

// Thread-safe: all calls take the lock. The caller has checked the paths (path_resolver.h), which
// are relative to `base`. Errors have the errno that a kernel would give.
class MemoryFileSystem {
 public:
  using NodePtr = std::shared_ptr<MemoryNode>;

  explicit MemoryFileSystem(std::uint64_t capacity_bytes);
  ~MemoryFileSystem();

  // Valid until the next crash.
  struct Handle {
    NodePtr node;
    std::uint64_t generation = 0;
  };

  Result<Handle> Find(const Handle& base, std::string_view path) const;
  Result<Handle> OpenFile(const Handle& base, std::string_view path, OpenMode mode);
  Result<std::vector<DirectoryEntry>> List(const Handle& base, std::string_view path) const;
  Status MakeDirectory(const Handle& base, std::string_view path);
  Status Rename(const Handle& base, std::string_view from, std::string_view to);
  Status Remove(const Handle& base, std::string_view path, bool is_directory);
  Status SyncDirectory(const Handle& base, std::string_view path);

  Result<FileInfo> Info(const Handle& file) const;
  Result<std::uint64_t> Read(const Handle& file, std::uint64_t offset,
                             std::span<std::byte> buffer) const;
  // kAppend ignores the offset.
  Result<std::uint64_t> Write(const Handle& file, OpenMode mode, std::uint64_t offset,
                              std::span<const std::byte> data);
  Result<std::uint64_t> SyncData(const Handle& file);
  Status Resize(const Handle& file, std::uint64_t bytes, bool may_shrink);

  Handle Root() const;
  Directory::Space FreeSpace() const;
  void SetCapacity(std::uint64_t capacity_bytes);
  void Crash(const CrashOptions& options);

  // Changes that are durable at once; see MemoryBackend.
  Handle AddDirectory(std::string_view relative_path);
  void AddFile(std::string_view relative_path, std::span<const std::byte> bytes);
  Result<std::vector<std::byte>> FileBytes(std::string_view relative_path) const;
  Status FlipBit(std::string_view relative_path, std::uint64_t bit_index);

  void CountOpenFile(int change);
  std::size_t open_file_count() const;
  std::size_t open_file_peak() const;

 private:
  struct Parent {
    MemoryNode* node = nullptr;
    std::string name;
  };
  Status CheckHandle(const Handle& handle) const FOREBAY_REQUIRES(mutex_);
  Result<NodePtr> Walk(const Handle& base, std::string_view path) const FOREBAY_REQUIRES(mutex_);
  Result<Parent> WalkToParent(const Handle& base, std::string_view path) const
      FOREBAY_REQUIRES(mutex_);
  Status Grow(MemoryNode& node, std::uint64_t bytes) FOREBAY_REQUIRES(mutex_);
  void ChangeSize(MemoryNode& node, std::uint64_t bytes) FOREBAY_REQUIRES(mutex_);
  void Drop(MemoryNode& node) FOREBAY_REQUIRES(mutex_);
  NodePtr MakeNode(bool is_directory) FOREBAY_REQUIRES(mutex_);
  NodePtr AddDirectoryLocked(std::string_view relative_path) FOREBAY_REQUIRES(mutex_);
  void Touch(MemoryNode& node) FOREBAY_REQUIRES(mutex_) { node.mtime_ns = ++time_; }

  mutable Mutex mutex_;
  NodePtr root_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t capacity_bytes_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t used_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t generation_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::int64_t time_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::size_t open_file_count_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::size_t open_file_peak_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::io
