// MemoryBackend: an in-memory file system behind the I/O interface, which can simulate power loss.
// For tests. Part of forebay::io_testing, never of a production target.
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
  bool has_direct = true;                     // false: direct opens fall back to buffered ones
  std::uint64_t completion_seed = 0;          // not 0: seed by which Wait shuffles completions
};

// What remains, after power loss, of data and directory changes that were not synced. POSIX
// promises nothing; real file systems keep any part.
enum class CrashMode : std::uint8_t {
  kDropUnsynced,       // nothing
  kRandomSubset,       // the old or the new state of each block and each directory
  kRenameWithoutData,  // every directory change, but no data: names of old or empty files
};

struct CrashOptions {
  CrashMode mode = CrashMode::kDropUnsynced;
  std::uint64_t seed = 1;         // kRandomSubset
  std::size_t torn_bytes = 4096;  // kRandomSubset: what a device writes at once, 512 or 4096
};

// A strict file system: data survives a crash if its file was data-synced, a name if its directory
// was synced. It has no symlinks. Times are a counter, so that runs can be repeated. Operations run
// inside Submit. Thread-safe. Must outlive what it makes.
class MemoryBackend final : public IoBackend {
 public:
  explicit MemoryBackend(const MemoryOptions& options = {});
  ~MemoryBackend() override;
  MemoryBackend(const MemoryBackend&) = delete;
  MemoryBackend& operator=(const MemoryBackend&) = delete;

  std::string_view name() const override { return "memory"; }
  Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) override;
  Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) override;

  // The following calls take absolute paths, and their changes are durable at once.
  // Makes a directory and its missing parents. "/" always exists.
  Status AddDirectory(std::string_view path);
  // Creates or replaces a file, and its parent directories.
  Status AddFile(std::string_view path, std::span<const std::byte> bytes);
  Result<std::vector<std::byte>> FileBytes(std::string_view path) const;
  // Inverts one bit of a file, like bit rot: in its durable state too, and without a new mtime.
  Status FlipBit(std::string_view path, std::uint64_t bit_index);

  // Simulates power loss and restart: files and directories that were opened before answer
  // kUnavailable from now on; open them again. Nothing may be in flight on other threads.
  void Crash(const CrashOptions& options = {});

  void SetCapacity(std::uint64_t capacity_bytes);
  std::size_t open_file_count() const;  // File objects alive, for leak checks
  std::size_t open_file_peak() const;   // the largest open_file_count so far

 private:
  const MemoryOptions options_;
  const std::unique_ptr<MemoryFileSystem> files_;
};

}  // namespace forebay::io
