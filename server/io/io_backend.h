// The one interface through which the daemon uses files. Real back ends: io_uring (uring_backend.h)
// and a pread thread pool (thread_backend.h). For tests: files in memory (memory_backend.h), and
// faults on top of any back end (faulty_backend.h). One typed test suite runs over all of them.
//
// It has two halves: `Directory` does the cold work (open, list, rename, sync) synchronously,
// `IoQueue` the hot work (reads, writes, data syncs) asynchronously and in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::io {

enum class OpenMode : std::uint8_t {
  kRead,          // buffered
  kReadDirect,    // O_DIRECT; falls back to kRead if the file system refuses it (see is_direct)
  kCreate,        // create for writing only; fails if the file exists
  kCreateDirect,  // as kCreate, with O_DIRECT or the fallback
  kAppend,        // create if missing, write at the end; offsets are ignored; one write at a time
  // A new file without a name, to read and write; the path is that of a directory. Its space is
  // free again when it is closed, in whatever way the process ends. kUnimplemented if the file
  // system has no such files.
  kUnnamed,
  kUnnamedDirect,  // as kUnnamed, with O_DIRECT or the fallback
};

struct FileInfo {
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;  // since the Unix epoch
  bool is_regular = false;
  bool is_directory = false;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;  // for a symlink: of its target, if that lies beneath the root
  bool is_regular = false;    // neither: a device, FIFO, socket, or a dangling link
};

// An open file. Thread-safe to use from several queues. Closed on destruction, which must come
// after every operation on it has completed.
class File {
 public:
  virtual ~File() = default;
  virtual Result<FileInfo> Info() const = 0;
  // True if transfers bypass the page cache: then offset, length and address of every operation
  // must be multiples of limits::kIoAlignmentBytes (a read may end past the end of file).
  virtual bool is_direct() const = 0;
  // Reserves `bytes` on the device, so that a later write does not fail with ENOSPC. The file's
  // size becomes at least `bytes`; bytes that were not written read as zeros. kUnimplemented if
  // the file system does not support it.
  virtual Status Preallocate(std::uint64_t bytes) = 0;
  virtual Status Truncate(std::uint64_t bytes) = 0;
  // Asks the file system to drop this node's cached pages of the file, so that the next read comes
  // from the device. A hint without a guarantee.
  virtual void DropCached() {}
};

// A directory beneath which every path of this interface is resolved. Nothing outside it is ever
// opened: `..`, absolute paths and symlinks that leave it give kPermissionDenied. Paths are
// relative, '/'-separated, canonical (no empty and no "." component: kInvalidArgument), at most
// limits::kPathBytesMax. Only regular files open. Thread-safe; calls block.
class Directory {
 public:
  virtual ~Directory() = default;
  virtual Result<std::unique_ptr<File>> Open(std::string_view path, OpenMode mode) = 0;
  virtual Result<FileInfo> Stat(std::string_view path) = 0;
  // Entries of `path` ("" is this directory) without "." and "..", sorted by name as bytes.
  virtual Result<std::vector<DirectoryEntry>> List(std::string_view path) = 0;
  // Makes one directory with mode 0700. kAlreadyExists if it exists.
  virtual Status MakeDirectory(std::string_view path) = 0;
  // Atomic replacement, as rename(2).
  virtual Status Rename(std::string_view from, std::string_view to) = 0;
  virtual Status Unlink(std::string_view path) = 0;
  virtual Status RemoveDirectory(std::string_view path) = 0;
  // Makes renames and unlinks in `path` durable.
  virtual Status Sync(std::string_view path) = 0;
  // The bytes that are free for an unprivileged writer, all bytes of the file system, and its type
  // (f_type of statfs(2)), which stays the same when the file system is mounted again.
  struct Space {
    std::uint64_t free_bytes = 0;
    std::uint64_t total_bytes = 0;
    std::uint64_t file_system_type = 0;
  };
  virtual Result<Space> FreeSpace() = 0;
};

enum class OpKind : std::uint8_t { kRead, kWrite, kDataSync };

// One asynchronous operation. `file` and the memory must stay valid until its completion.
struct Operation {
  OpKind kind = OpKind::kRead;
  File* file = nullptr;
  std::uint64_t offset = 0;
  std::span<std::byte> buffer;              // kRead: receives the bytes
  std::span<const std::byte> data;          // kWrite: the bytes to write
  std::uint64_t tag = 0;                    // returned with the completion
};

struct Completion {
  std::uint64_t tag = 0;
  // The bytes transferred. A read is short only at the end of the file; a write is never short.
  // Interrupted and partial transfers are resumed below this interface. A data sync transfers 0;
  // it covers the writes that had completed before it was submitted, and is never repeated.
  Result<std::uint64_t> bytes = std::uint64_t{0};
};

// A queue of operations of one thread: the thread that submits also waits. Not thread-safe.
// Destruction waits for the operations in flight.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // Takes all operations, or none and returns an error: kResourceExhausted if in_flight() +
  // operations.size() would exceed depth(), kInvalidArgument if an operation breaks the file's
  // alignment rule.
  virtual Status Submit(std::span<const Operation> operations) = 0;
  // Blocks until `count_min` completions (at most in_flight()) have been appended to
  // `completions`, or `timeout_ms` has passed (nullopt: no limit). Returns the number appended.
  virtual std::size_t Wait(std::size_t count_min, std::vector<Completion>& completions,
                           std::optional<std::int64_t> timeout_ms = std::nullopt) = 0;
  virtual std::size_t in_flight() const = 0;
  virtual std::size_t depth() const = 0;
};

struct QueueOptions {
  std::size_t depth = 64;  // operations in flight, at most limits::kIoDepthMax
};

// A way of doing I/O. Thread-safe. Must outlive the directories, files and queues that it made.
class IoBackend {
 public:
  virtual ~IoBackend() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "threads", "memory", "faulty(...)"
  // `path` is absolute and must exist.
  virtual Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) = 0;
  virtual Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) = 0;
};

// Whole transfers on an idle queue, for cold paths: submit one operation and wait. A short read is
// kDataLoss, whose message has the offset at which the file ends.
Status ReadFully(IoQueue& queue, File& file, std::uint64_t offset, std::span<std::byte> buffer);
Status WriteFully(IoQueue& queue, File& file, std::uint64_t offset,
                  std::span<const std::byte> data);
Status DataSync(IoQueue& queue, File& file);

}  // namespace forebay::io
