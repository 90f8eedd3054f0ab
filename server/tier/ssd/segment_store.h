// SegmentStore: extents on node-local SSD. One file per extent: the image, padded to 4 KiB,
// then the checksum table, then a footer; an append-only manifest says which are published.
// Publish rules (design 7.2): write temp, check, fdatasync, rename, fsync the directory, then
// the manifest record. A failed sync drops the file and is never retried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_key.h"

namespace forebay::tier {

// A published segment, open for direct reads. Shared by readers; the file stays readable until
// the last of them lets go, also after Remove.
struct Segment {
  ExtentKey key;
  std::uint64_t image_bytes = 0;
  ExtentChecksums checksums;
  std::unique_ptr<io::File> file;  // image at offset 0; may be direct
};

// Thread-safe; calls block on the device.
class SegmentStore {
 public:
  struct Options {
    std::uint64_t capacity_bytes = 0;
    bool direct = true;  // O_DIRECT where the file system allows it
  };
  // Opens (or makes) a store in `directory`, which it borrows. Reads the manifest: a torn tail
  // is ignored, a damaged earlier record is dropped with what follows it and counted; temp
  // files and segments without a record are removed.
  static Result<std::unique_ptr<SegmentStore>> Open(io::IoBackend& backend,
                                                    io::Directory& directory,
                                                    const Options& options);
  virtual ~SegmentStore() = default;

  // Stores an extent. `image` must be 4 KiB-aligned memory whose padding up to the next 4 KiB
  // may be written; `queue` must be idle and is the calling thread's own. kAlreadyExists: it
  // is published, or just being written or removed. kResourceExhausted: the capacity or the
  // device is full, nothing was left behind. kDataLoss / others: the device failed, nothing
  // was published. Files that cannot be removed keep counting until a later Put removes them.
  virtual Status Put(io::IoQueue& queue, const ExtentKey& key, std::span<std::byte> image,
                     const ExtentChecksums& checksums) = 0;
  // The segment; kNotFound. kDataLoss where its footer or table is damaged (it is removed).
  // Reads from the device unless the segment is still open; limits::kSegmentsOpenMax
  // stay open for the next reader.
  virtual Result<std::shared_ptr<const Segment>> Get(const ExtentKey& key) = 0;
  // Removes the record, then the file. kNotFound. After any other error the extent is no
  // longer served either, and what is left of it goes with a later Put or Open.
  virtual Status Remove(const ExtentKey& key) = 0;
  virtual bool Contains(const ExtentKey& key) const = 0;  // published
  virtual std::vector<ExtentKey> Keys() const = 0;  // published, by manifest order
  // The same, with the bytes of their files.
  struct Stored {
    ExtentKey key;
    std::uint64_t file_bytes = 0;
  };
  virtual std::vector<Stored> Contents() const = 0;
  virtual std::uint64_t capacity_bytes() const = 0;
  virtual std::uint64_t used_bytes() const = 0;  // of files: padding, tables, footers included
  // What a Put of such an extent adds to used_bytes().
  static std::uint64_t FileBytes(std::uint64_t image_bytes, std::size_t pieces);
  // What Open found damaged or left over.
  struct Recovery {
    std::uint64_t segments = 0;         // published, so still there
    std::uint64_t dropped_records = 0;  // damaged, after damage, or without their file
    std::uint64_t removed_files = 0;    // temps, and segments without a record
    bool has_torn_tail = false;
  };
  virtual Recovery recovery() const = 0;
};

}  // namespace forebay::tier
