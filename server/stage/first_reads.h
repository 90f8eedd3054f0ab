// FirstReads: the checksum of every extent of a data set as it was first read from the GFS, and
// the comparison of later reads with it. An object that changes while its size and modification
// time stay would otherwise be delivered as if nothing had happened.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

// Kept in memory, and in an append-only file beside the saved catalog (docs/first_reads.md) so
// that the next daemon compares with the same. A record that is lost to a crash or to damage
// costs the comparison of its extent, never an extent. Thread-safe.
class FirstReads {
 public:
  // Keeps what `name` in `directory` holds, and appends to it from now on. With `forget` the file
  // is removed first: the objects are accepted as they are. Both are borrowed. On an error the
  // checksums are kept in memory alone.
  Status Open(io::IoBackend& backend, io::Directory& directory, std::string name, bool forget);
  // Accepts the objects as they are from now on.
  void Forget();

  enum class Outcome : std::uint8_t { kFirst, kSame, kChanged };
  // Compares, and records what was not known. `key` is of the extent as it lies on the GFS.
  Outcome Compare(const tier::ExtentKey& key, std::uint64_t image_checksum);

  // A piece of an extent, read alone, was not as its extent's first read.
  void CountMismatch();
  // Whether the extent was first read with another checksum.
  bool Differs(const tier::ExtentKey& key, std::uint64_t image_checksum) const;

  std::uint64_t mismatches() const;  // reads that were not as the first

 private:
  Status Load(io::IoQueue& queue);
  Status Append(const tier::ExtentKey& key, std::uint64_t image_checksum);

  mutable std::mutex mutex_;
  std::unordered_map<tier::ExtentKey, std::uint64_t, tier::ExtentKeyHash> known_;
  std::uint64_t mismatches_ = 0;
  io::IoBackend* backend_ = nullptr;     // null: in memory alone
  io::Directory* directory_ = nullptr;
  std::string name_;
  std::unique_ptr<io::File> file_;
  std::uint64_t file_bytes_ = 0;  // of whole records
};

}  // namespace forebay::stage
