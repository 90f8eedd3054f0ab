// FirstReads: keeps the checksum that every extent of a data set had when it was first read from
// the GFS, and compares later reads with it. Otherwise an object that changes while its size and
// modification time stay the same would be delivered unnoticed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

// Kept in memory, and in an append-only file beside the saved catalog (docs/first_reads.md), so
// that the next daemon compares with the same checksums. If a record is lost, in a crash or by
// damage, the next read of its extent counts as the first. Thread-safe.
class FirstReads {
 public:
  // Loads the file `name` in `directory`, and appends to it from now on. With `forget`, removes the
  // file first: the objects are accepted as they are. `backend` and `directory` are borrowed. After
  // an error the checksums are kept in memory only.
  Status Open(io::IoBackend& backend, io::Directory& directory, std::string name, bool forget);
  // Forgets all checksums in memory: the objects are accepted as they are.
  void Forget();

  enum class Outcome : std::uint8_t { kFirst, kSame, kChanged };
  // Compares with the first read, or records this one as the first. `key`: of the raw extent.
  Outcome Compare(const tier::ExtentKey& key, std::uint64_t image_checksum);

  // Counts a piece of an extent that was read alone and did not match its checksum.
  void CountMismatch();
  // Whether the extent was first read with another checksum.
  bool Differs(const tier::ExtentKey& key, std::uint64_t image_checksum) const;

  std::uint64_t mismatches() const;  // reads that differed from the first read

 private:
  Status Load(io::IoQueue& queue) FOREBAY_REQUIRES(mutex_);
  Status Append(const tier::ExtentKey& key, std::uint64_t image_checksum)
      FOREBAY_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<tier::ExtentKey, std::uint64_t, tier::ExtentKeyHash> known_
      FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t mismatches_ FOREBAY_GUARDED_BY(mutex_) = 0;
  io::IoBackend* backend_ FOREBAY_GUARDED_BY(mutex_) = nullptr;  // null: in memory only
  io::Directory* directory_ FOREBAY_GUARDED_BY(mutex_) = nullptr;
  std::string name_ FOREBAY_GUARDED_BY(mutex_);
  std::unique_ptr<io::File> file_ FOREBAY_GUARDED_BY(mutex_);
  // Up to the end of the last whole record.
  std::uint64_t file_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::stage
