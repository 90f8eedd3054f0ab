// Takes a pack apart and puts it together again with every checksum right, so that what was
// changed in between is what a reader finds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/format/pack/pack_format.h"

namespace forebay::compress {

// Of a sound pack that is not aligned. Not thread-safe.
class PackEditor {
 public:
  struct Record {
    RecordType type = RecordType::kChunk;
    std::vector<std::byte> added, payload;
    std::size_t entry = 0;  // in the index, of its type
  };

  explicit PackEditor(const std::vector<std::byte>& bytes);

  std::vector<Record>& records() { return records_; }
  Record& Chunk(std::size_t entry);  // by its number in the index
  PackIndex& index() { return index_; }  // offsets, sizes and checksums are set by Bytes()
  void set_footer_samples(std::uint64_t samples) { footer_samples_ = samples; }
  // The index says of its first chunk that it lies so much further on.
  void set_misplaced_by(std::uint64_t bytes) { misplaced_by_ = bytes; }
  void InsertUnknownRecord(std::size_t before);

  // Changes the little-endian `width` bytes at `at` of what a chunk's record adds.
  void Patch(std::size_t entry, std::size_t at, std::size_t width, std::uint64_t value);

  std::vector<std::byte> Bytes();

 private:
  std::vector<std::byte> start_;
  std::vector<Record> records_;
  PackIndex index_;
  std::uint64_t footer_samples_ = 0, misplaced_by_ = 0;
};

}  // namespace forebay::compress
