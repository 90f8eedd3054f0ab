// An in-memory file system behind the I/O interface, with power loss on demand. For tests and
// the cluster simulator; part of forebay::io_testing, never of a production target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::io {

class MemoryFileSystem;

struct MemoryOptions {
  std::uint64_t capacity_bytes = 1ULL << 30;  // beyond it, growth fails with ENOSPC
  bool has_direct = true;                     // false: direct opens fall back to buffered
  std::uint64_t completion_seed = 0;          // not 0: Wait returns completions shuffled by it
};

// What power loss leaves of data and directory changes that were not synced. POSIX promises
// none of them; real file systems keep any part.
enum class CrashMode : std::uint8_t {
  kDropUnsynced,       // nothing
  kRandomSubset,       // per torn block and per directory, the old or the new state
  kRenameWithoutData,  // every directory change, no data: names that lead to old or empty files
};

struct CrashOptions {
  CrashMode mode = CrashMode::kDropUnsynced;
  std::uint64_t seed = 1;         // kRandomSubset
  std::size_t torn_bytes = 4096;  // kRandomSubset: what a device writes as one, 512 or 4096
};

// A strict file system: data lasts when its file was data-synced, names last when their
// directory was synced. No symlinks. Times are a counter, so that runs repeat. Operations run
// inside Submit. Thread-safe; must outlive what it makes.
class MemoryBackend final : public IoBackend {
 public:
  explicit MemoryBackend(const MemoryOptions& options = {});
  ~MemoryBackend() override;
  MemoryBackend(const MemoryBackend&) = delete;
  MemoryBackend& operator=(const MemoryBackend&) = delete;

  std::string_view name() const override { return "memory"; }
  Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) override;
  Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) override;

  // The following take absolute paths and act as if by another, durable hand.
  // Makes a directory and its parents where missing. "/" is always there.
  Status AddDirectory(std::string_view path);
  // Creates or replaces a file, and its parent directories.
  Status AddFile(std::string_view path, std::span<const std::byte> bytes);
  Result<std::vector<std::byte>> FileBytes(std::string_view path) const;
  // Inverts one bit of a file, as bit rot would: also in its durable state, mtime unchanged.
  Status FlipBit(std::string_view path, std::uint64_t bit_index);

  // Power loss and restart: files and directories opened before answer kUnavailable from now
  // on; open what is left anew. Nothing may be in flight on other threads.
  void Crash(const CrashOptions& options = {});

  void SetCapacity(std::uint64_t capacity_bytes);
  std::size_t open_file_count() const;  // File objects alive, for leak checks
  std::size_t open_file_peak() const;   // the most that ever were

 private:
  const MemoryOptions options_;
  const std::unique_ptr<MemoryFileSystem> files_;
};

}  // namespace forebay::io
