// SegmentStore: the `ssd` tier. One file per extent: its image, padded to 4 KiB, then the checksum
// table, then a footer. An append-only manifest lists the files that are published. A file is
// published as docs/design.md, 7.2, says: write to a temporary name, check, fdatasync, rename,
// fsync of the directory, manifest record. A failed sync drops the file and is never repeated.
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

// A published segment, open for direct reads. Readers share it. The file stays readable until the
// last reference is gone, also after Remove.
struct Segment {
  ExtentKey key;
  std::uint64_t image_bytes = 0;
  ExtentChecksums checksums;
  std::unique_ptr<io::File> file;  // the image begins at offset 0; may need aligned reads
};

// Thread-safe; calls block on the device.
class SegmentStore {
 public:
  struct Options {
    std::uint64_t capacity_bytes = 0;
    bool direct = true;  // O_DIRECT if the file system allows it
  };
  // Opens or creates a store in `directory`, which it borrows. Reads the manifest: ignores a torn
  // last record; drops an earlier damaged record and all that follow it, and counts them. Removes
  // temporary files, and segments without a record.
  static Result<std::unique_ptr<SegmentStore>> Open(io::IoBackend& backend,
                                                    io::Directory& directory,
                                                    const Options& options);
  virtual ~SegmentStore() = default;

  // Stores an extent. `image` must be aligned to 4 KiB, and its padding up to the next 4 KiB must
  // be writable; `queue` must be idle and belong to the calling thread. kAlreadyExists: the extent
  // is published, or is being written or removed. kResourceExhausted: the capacity or the device is
  // full; no file is left. kDataLoss and others: the device failed; nothing was published. A file
  // that cannot be removed counts as used until a later Put removes it.
  virtual Status Put(io::IoQueue& queue, const ExtentKey& key, std::span<std::byte> image,
                     const ExtentChecksums& checksums) = 0;
  // The segment of an extent, or kNotFound. kDataLoss: its footer or table is damaged, and it was
  // removed. Reads the footer from the device unless the segment is still open; the last
  // limits::kSegmentsOpenMax segments stay open for the next reader.
  virtual Result<std::shared_ptr<const Segment>> Get(const ExtentKey& key) = 0;
  // Appends a removal to the manifest, then removes the file. kNotFound: it is not published. After
  // other errors it is no longer served either; a later Put or Open removes what is left of it.
  virtual Status Remove(const ExtentKey& key) = 0;
  virtual bool Contains(const ExtentKey& key) const = 0;  // whether it is published
  // Whether this is what Get would return now: a segment may have been removed, and another one of
  // the same key published, since its reader got it.
  virtual bool Serves(const Segment& segment) const = 0;
  virtual std::vector<ExtentKey> Keys() const = 0;  // published extents, in manifest order
  // The published extents with the sizes of their files.
  struct Stored {
    ExtentKey key;
    std::uint64_t file_bytes = 0;
  };
  virtual std::vector<Stored> Contents() const = 0;
  virtual std::uint64_t capacity_bytes() const = 0;
  virtual std::uint64_t used_bytes() const = 0;  // sizes of the files, with padding and trailers
  // How much a Put of an extent adds to used_bytes().
  static std::uint64_t FileBytes(std::uint64_t image_bytes, std::size_t pieces);
  // What Open found.
  struct Recovery {
    std::uint64_t segments = 0;         // published segments of an earlier daemon
    std::uint64_t dropped_records = 0;  // damaged, after a damaged one, or without a file
    std::uint64_t removed_files = 0;    // temporary files, and segments without a record
    bool has_torn_tail = false;
  };
  virtual Recovery recovery() const = 0;
};

}  // namespace forebay::tier
