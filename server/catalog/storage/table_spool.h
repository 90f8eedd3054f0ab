// TableSpool: a table of a catalog under construction, in memory while it is small and beyond
// that in a scratch file, so that memory does not grow with the number of samples.
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

// Bytes that only grow. Keeps scratch.table_bytes in memory; then everything so far goes to the
// scratch file, and 1 MiB stays as a buffer for what follows. Without a scratch directory it
// stays in memory up to limits::kBuildTableNoScratchBytesMax: kResourceExhausted beyond, as
// where the device is full. Of no use after an error. Not thread-safe; calls may block.
class TableSpool final : public ImageSink {
 public:
  explicit TableSpool(BuildScratch scratch) : scratch_(std::move(scratch)) {}

  Status Append(std::span<const std::byte> bytes) override;
  Status ReplaceStart(std::span<const std::byte> bytes) override;

  std::uint64_t size() const { return file_bytes_ + tail_.size(); }
  bool has_spilled() const { return file_.has_value(); }
  // offset + bytes.size() <= size().
  Status Read(std::uint64_t offset, std::span<std::byte> bytes) const;
  // All bytes in order, in pieces of at most 1 MiB.
  Status ForEachPiece(const std::function<Status(std::span<const std::byte>)>& visit) const;
  void Clear();
  // The bytes for a catalog to stand on: owned, or the scratch file mapped. Empty afterwards.
  Result<ImageBytes> Release();

 private:
  Status Flush();
  Status WriteOut(std::span<const std::byte> bytes);

  BuildScratch scratch_;
  std::optional<ScratchFile> file_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::byte> tail_;  // what follows the bytes in the file
};

// Reads a spool from its start, a megabyte at a time.
class SpoolReader {
 public:
  explicit SpoolReader(const TableSpool& spool) : spool_(spool) {}
  // The next `count` bytes, valid until the next call. kDataLoss past the end.
  Result<std::span<const std::byte>> Take(std::size_t count);

 private:
  const TableSpool& spool_;
  std::uint64_t at_ = 0;  // of the byte after buffer_
  std::vector<std::byte> buffer_;
  std::size_t taken_ = 0;
};

}  // namespace forebay::catalog
