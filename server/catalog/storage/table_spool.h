// TableSpool: a table of a catalog build. It stays in memory while it is small and moves to a
// scratch file when it grows, so that memory does not grow with the number of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/storage/build_scratch.h"
#include "server/catalog/storage/image_bytes.h"
#include "server/catalog/storage/image_sink.h"
#include "server/catalog/storage/scratch_file.h"

namespace forebay::catalog {

// An append-only sequence of bytes. Up to scratch.table_bytes stay in memory. Beyond that, all
// bytes so far go to the scratch file, and a buffer of 1 MiB collects what follows. Without a
// scratch directory the bytes stay in memory, up to limits::kBuildTableNoScratchBytesMax.
// kResourceExhausted beyond that, or if the device is full. Unusable after an error. Not
// thread-safe; calls may block.
class TableSpool final : public ImageSink {
 public:
  explicit TableSpool(BuildScratch scratch) : scratch_(std::move(scratch)) {}

  Status Append(std::span<const std::byte> bytes) override;
  Status ReplaceStart(std::span<const std::byte> bytes) override;

  std::uint64_t size() const { return file_bytes_ + tail_.size(); }
  bool has_spilled() const { return file_.has_value(); }
  // Requires offset + bytes.size() <= size().
  Status Read(std::uint64_t offset, std::span<std::byte> bytes) const;
  // Calls `visit` with all bytes in order, in pieces of at most 1 MiB. Stops at the first error.
  Status ForEachPiece(const std::function<Status(std::span<const std::byte>)>& visit) const;
  void Clear();
  // Moves the bytes into an ImageBytes: owned, or the scratch file mapped. The spool is empty then.
  Result<ImageBytes> Release();

 private:
  Status Flush();
  Status WriteOut(std::span<const std::byte> bytes);

  BuildScratch scratch_;
  std::optional<ScratchFile> file_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::byte> tail_;  // what follows the bytes in the file
};

// Reads a spool in order, with a buffer of 1 MiB.
class SpoolReader {
 public:
  // Reads the whole spool, to which nothing is appended meanwhile.
  explicit SpoolReader(const TableSpool& spool) : SpoolReader(spool, 0, spool.size()) {}
  // Reads the bytes [begin, end) of the spool, which has so many.
  SpoolReader(const TableSpool& spool, std::uint64_t begin, std::uint64_t end)
      : spool_(spool), at_(begin), end_(end) {}
  // Returns the next `count` bytes, valid until the next call. kDataLoss past the end.
  Result<std::span<const std::byte>> Take(std::size_t count);
  // The offset of the byte that Take returns next.
  std::uint64_t offset() const { return at_ - (buffer_.size() - taken_); }

 private:
  const TableSpool& spool_;
  std::uint64_t at_;  // offset in the spool of the byte after buffer_
  const std::uint64_t end_;
  std::vector<std::byte> buffer_;
  std::size_t taken_ = 0;
};

}  // namespace forebay::catalog
