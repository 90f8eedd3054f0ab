// The one interface through which the daemon touches files. Real back ends: io_uring
// (uring_backend.h) and a pread thread pool (thread_backend.h); in memory: memory_backend.h;
// faults on top of any of them: faulty_backend.h. One typed test suite runs over all.
//
// Two halves: `Directory` does the cold work (open, list, rename, sync) synchronously,
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
  kReadDirect,    // O_DIRECT; falls back to kRead where the file system refuses (see is_direct)
  kCreate,        // create, fails if it exists; write only
  kCreateDirect,  // as kCreate, O_DIRECT with the same fallback
  kAppend,        // create if missing, write at the end: offsets are ignored; one write at a time
};

struct FileInfo {
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;  // since the Unix epoch
  bool is_regular = false;
  bool is_directory = false;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;  // of a symlink: its target's, where that lies beneath the root
  bool is_regular = false;    // neither: a device, FIFO, socket, or a link that leads nowhere
};

// An open file. Thread-safe to use from several queues. Closed on destruction, which must come
// after every operation on it has completed.
class File {
 public:
  virtual ~File() = default;
  virtual Result<FileInfo> Info() const = 0;
  // True where transfers bypass the page cache: offset, length and address of every operation
  // must then be multiples of limits::kIoAlignmentBytes (a read may end past the end of file).
  virtual bool is_direct() const = 0;
  // Reserves `bytes` on the device, so that a later write cannot fail for want of space. The
  // file's size becomes at least `bytes`, and what was not written reads as zeros.
  // kUnimplemented where the file system cannot.
  virtual Status Preallocate(std::uint64_t bytes) = 0;
  virtual Status Truncate(std::uint64_t bytes) = 0;
  // The next read is to come from the device, not from this node's caches, as far as the file
  // system can be asked to. A hint: nothing is promised.
  virtual void DropCached() {}
};

// A directory beneath which every path of this interface is resolved. Nothing outside is ever
// opened: `..`, absolute paths and symlinks that leave it yield kPermissionDenied. Paths are
// relative, '/'-separated, canonical (no empty and no "." component: kInvalidArgument), at most
// limits::kPathBytesMax. Only regular files open. Thread-safe; calls block.
class Directory {
 public:
  virtual ~Directory() = default;
  virtual Result<std::unique_ptr<File>> Open(std::string_view path, OpenMode mode) = 0;
  virtual Result<FileInfo> Stat(std::string_view path) = 0;
  // Entries of `path` ("" is this directory) without "." and "..", sorted by name as bytes.
  virtual Result<std::vector<DirectoryEntry>> List(std::string_view path) = 0;
  // One directory, mode 0700. kAlreadyExists where it exists.
  virtual Status MakeDirectory(std::string_view path) = 0;
  // Atomic replacement, as rename(2).
  virtual Status Rename(std::string_view from, std::string_view to) = 0;
  virtual Status Unlink(std::string_view path) = 0;
  virtual Status RemoveDirectory(std::string_view path) = 0;
  // Makes renames and unlinks in `path` durable.
  virtual Status Sync(std::string_view path) = 0;
  // Bytes free to an unprivileged writer, and in total.
  struct Space { std::uint64_t free_bytes = 0; std::uint64_t total_bytes = 0; };
  virtual Result<Space> FreeSpace() = 0;
};

enum class OpKind : std::uint8_t { kRead, kWrite, kDataSync };

// One asynchronous operation. `file` and the memory must stay valid until its completion.
struct Operation {
  OpKind kind = OpKind::kRead;
  File* file = nullptr;
  std::uint64_t offset = 0;
  std::span<std::byte> buffer;              // kRead: filled
  std::span<const std::byte> data;          // kWrite: stored
  std::uint64_t tag = 0;                    // returned with the completion
};

struct Completion {
  std::uint64_t tag = 0;
  // Bytes transferred. A read is short only at the end of the file; a write is never short.
  // Interrupted and partial transfers are resumed below this interface. A data sync moves 0; it
  // covers the writes that had completed before it was submitted, and is never retried.
  Result<std::uint64_t> bytes = std::uint64_t{0};
};

// A queue of operations of one thread: the thread that submits also waits. Not thread-safe.
// Destruction waits for what is in flight.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // Takes every operation, or none with an error (kResourceExhausted where in_flight() +
  // operations.size() would exceed depth()). An operation that breaks the file's alignment
  // rule is a kInvalidArgument of the whole call.
  virtual Status Submit(std::span<const Operation> operations) = 0;
  // Blocks until `count_min` completions (at most in_flight()) have been appended to
  // `completions`, or `timeout_ms` has passed (nullopt: no limit). Returns how many were.
  virtual std::size_t Wait(std::size_t count_min, std::vector<Completion>& completions,
                           std::optional<std::int64_t> timeout_ms = std::nullopt) = 0;
  virtual std::size_t in_flight() const = 0;
  virtual std::size_t depth() const = 0;
  // Makes memory known to the device once, so that later transfers into it skip page pinning.
  // Optional: a refusal (locked-memory limit) is an error, and unregistered I/O still works.
  virtual Status RegisterMemory(std::span<const std::span<std::byte>> regions) = 0;
};

struct QueueOptions {
  std::size_t depth = 64;  // operations in flight, at most limits::kIoDepthMax
};

// A way of doing I/O. Thread-safe; outlives the directories, files and queues it made.
class IoBackend {
 public:
  virtual ~IoBackend() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "threads", "memory", "faulty(...)"
  // `path` is absolute and must exist.
  virtual Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) = 0;
  virtual Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) = 0;
};

// Whole transfers on a queue of one's own, for cold paths: submits, waits, and maps a short
// read to kDataLoss ("file ends at X, wanted Y").
Status ReadFully(IoQueue& queue, File& file, std::uint64_t offset, std::span<std::byte> buffer);
Status WriteFully(IoQueue& queue, File& file, std::uint64_t offset,
                  std::span<const std::byte> data);
Status DataSync(IoQueue& queue, File& file);

}  // namespace forebay::io
