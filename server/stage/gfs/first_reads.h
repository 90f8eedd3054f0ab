// FirstReads: keeps the checksum that every extent of a data set had when it was first read from
// the GFS, by this node or by another one that has given it (first_read_sharing.h), and compares
// later reads with it. Otherwise an object that changes while its size and modification time stay
// the same would be delivered unnoticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

struct FirstRead {
  tier::ExtentKey key;         // of the raw extent
  std::uint64_t checksum = 0;  // of its image
  bool operator==(const FirstRead&) const = default;
};

// Kept in memory, and in an append-only file beside the saved catalog (docs/first_reads.md), so
// that the next daemon compares with the same checksums. If a record is lost, in a crash or by
// damage, the next read of its extent counts as the first. Thread-safe.
class FirstReads {
 public:
  // Loads the file `name` in `directory`, and appends to it from now on. With `forget`, removes the
  // file first: the objects are accepted as they are. `backend` and `directory` are borrowed. After
  // an error the checksums are kept in memory only.
  Status Open(io::IoBackend& backend, io::Directory& directory, std::string name, bool forget);
  // Whether Open was called, with or without success.
  bool was_opened() const;
  // Forgets all checksums in memory: the objects are accepted as they are.
  void Forget();

  enum class Outcome : std::uint8_t { kFirst, kSame, kChanged };
  // Compares with the first read, or records this one as the first. `key`: of the raw extent.
  Outcome Compare(const tier::ExtentKey& key, std::uint64_t image_checksum);

  // Records what another node has read first. What is known already stays. Returns the indexes of
  // the reads that differ from that, which count as mismatches, in rising order.
  std::vector<std::uint32_t> KeepOfOther(std::span<const FirstRead> reads);
  // The first read of the extent, by whichever node.
  std::optional<std::uint64_t> Find(const tier::ExtentKey& key) const;
  // Whether another node has read the extent first.
  bool IsOfOther(const tier::ExtentKey& key) const;
  std::size_t count() const;

  // Counts a piece of an extent that was read alone and did not match its checksum.
  void CountMismatch();
  // Whether the extent was first read with another checksum.
  bool Differs(const tier::ExtentKey& key, std::uint64_t image_checksum) const;

  std::uint64_t mismatches() const;  // reads that differed from the first read

 private:
  struct Known {
    std::uint64_t checksum = 0;
    bool is_of_other = false;  // another node has read the extent
  };

  Result<bool> OpenLocked(io::IoBackend& backend, io::Directory& directory, std::string name,
                          bool forget) FOREBAY_REQUIRES(mutex_);
  Result<bool> Load(io::IoQueue& queue) FOREBAY_REQUIRES(mutex_);
  Status Append(std::span<const std::byte> records) FOREBAY_REQUIRES(mutex_);
  // Appends records to the file, if there is one; after an error there is none any more.
  void Save(std::span<const std::byte> records) FOREBAY_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<tier::ExtentKey, Known, tier::ExtentKeyHash> known_
      FOREBAY_GUARDED_BY(mutex_);
  bool was_opened_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::uint64_t mismatches_ FOREBAY_GUARDED_BY(mutex_) = 0;
  io::IoBackend* backend_ FOREBAY_GUARDED_BY(mutex_) = nullptr;  // null: in memory only
  io::Directory* directory_ FOREBAY_GUARDED_BY(mutex_) = nullptr;
  std::string name_ FOREBAY_GUARDED_BY(mutex_);
  std::unique_ptr<io::File> file_ FOREBAY_GUARDED_BY(mutex_);
  // Up to the end of the last whole record.
  std::uint64_t file_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::stage
