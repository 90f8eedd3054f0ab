// Walks over a pack's records one after the other, for files that have no index (yet): a run to be
// resumed, a pack to be recovered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/decode/pack/byte_source.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Borrows its arguments. Not thread-safe.
class PackWalk {
 public:
  // `begin` is the offset of the first record. Without `verify_payloads` only heads are checked.
  PackWalk(const ByteSource& source, const PackSchema& schema, std::uint64_t identity,
           std::uint64_t begin, bool verify_payloads)
      : source_(source),
        schema_(schema),
        identity_(identity),
        verify_payloads_(verify_payloads),
        offset_(begin) {}

  // Takes the next record, skipping records of unknown types. Returns false at the first record
  // that is damaged or cut off, at the index, and at the end of the file; offset() is then the
  // offset of that record. Whether chunks follow each other without gaps is not checked here but
  // by CheckPackIndex.
  bool Next();

  // The error of the operating system that ended the walk, if one did: then nothing is known of the
  // record at offset(), which may be whole.
  const Status& status() const { return status_; }

  std::uint64_t offset() const { return offset_; }
  const std::vector<ChunkEntry>& chunks() const { return chunks_; }  // in the file's order
  const std::vector<KeyEntry>& keys() const { return keys_; }

 private:
  bool Read(std::uint64_t offset, std::span<std::byte> bytes);
  bool PayloadIsSound(const RecordPrefix& prefix);
  bool TakeChunk(const RecordPrefix& prefix, std::span<const std::byte> added);
  bool TakeKeys(const RecordPrefix& prefix, std::span<const std::byte> added);

  const ByteSource& source_;
  const PackSchema& schema_;
  const std::uint64_t identity_;
  const bool verify_payloads_;
  std::uint64_t offset_;
  Status status_;
  std::vector<std::byte> record_, payload_;
  std::vector<ChunkEntry> chunks_;
  std::vector<KeyEntry> keys_;
};

}  // namespace forebay::compress
