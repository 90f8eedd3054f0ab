// Walks over a pack's records from its front: what is read where there is no index yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/decode/pack/byte_source.h"
#include "compress/format/pack/pack_format.h"

namespace forebay::compress {

// Borrows its arguments. Not thread-safe.
class PackWalk {
 public:
  // `begin` is where records begin. Without `verify_payloads` only heads are checked.
  PackWalk(const ByteSource& source, const PackSchema& schema, std::uint64_t identity,
           std::uint64_t begin, bool verify_payloads)
      : source_(source),
        schema_(schema),
        identity_(identity),
        verify_payloads_(verify_payloads),
        offset_(begin) {}

  // Takes the next record if it is whole and sound; passes over types it does not know. False
  // at the first that is not, at the index and at the end of the file; offset() is then where
  // it lies. Whether chunks follow one another is for CheckPackIndex to say.
  bool Next();

  std::uint64_t offset() const { return offset_; }
  const std::vector<ChunkEntry>& chunks() const { return chunks_; }  // in the file's order
  const std::vector<KeyEntry>& keys() const { return keys_; }

 private:
  bool PayloadIsSound(const RecordPrefix& prefix);
  bool TakeChunk(const RecordPrefix& prefix, std::span<const std::byte> added);
  bool TakeKeys(const RecordPrefix& prefix, std::span<const std::byte> added);

  const ByteSource& source_;
  const PackSchema& schema_;
  const std::uint64_t identity_;
  const bool verify_payloads_;
  std::uint64_t offset_;
  std::vector<std::byte> record_, payload_;
  std::vector<ChunkEntry> chunks_;
  std::vector<KeyEntry> keys_;
};

}  // namespace forebay::compress
