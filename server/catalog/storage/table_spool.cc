// A spool is the bytes in its scratch file, followed by tail_ in memory. Append decides when the
// tail goes to the file; all reads first take what the file has, then what the tail has.
#include "server/catalog/storage/table_spool.h"

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::catalog {
namespace {

// The size of requests to the scratch file, and of the buffer beside it.
constexpr std::size_t kPieceBytes = 1 * limits::kMiB;

}  // namespace

Status TableSpool::Append(std::span<const std::byte> bytes) {
  if (!scratch_.directory.empty()) {
    // Before the first flush the whole table may stay in memory, afterwards only a buffer.
    // `table_bytes` may be smaller than the buffer, in tests and in SeenKeys; then the first append
    // creates the file.
    const std::uint64_t bound = file_.has_value() ? kPieceBytes : scratch_.table_bytes;
    if (tail_.size() + bytes.size() > bound) {
      FOREBAY_TRY(Flush());
      // Bytes that would not fit the buffer go to the file directly, after the tail before them.
      if (bytes.size() > kPieceBytes) return WriteOut(bytes);
    }
  } else if (bytes.size() > limits::kBuildTableNoScratchBytesMax - tail_.size()) {
    return Error(ErrorCode::kResourceExhausted,
                 "a table of the catalog exceeds " +
                     std::to_string(limits::kBuildTableNoScratchBytesMax) +
                     " bytes (kBuildTableNoScratchBytesMax) and there is no directory for "
                     "scratch files (daemon.state_dir)");
  }
  tail_.insert(tail_.end(), bytes.begin(), bytes.end());
  return {};
}

Status TableSpool::WriteOut(std::span<const std::byte> bytes) {
  FOREBAY_TRY(file_->Write(file_bytes_, bytes));
  file_bytes_ += bytes.size();
  return {};
}

Status TableSpool::Flush() {
  // The file is created only when a table needs it, so a build whose tables are small needs no
  // scratch directory that works.
  if (!file_.has_value()) {
    FOREBAY_ASSIGN(file_, ScratchFile::Create(scratch_.directory));
  }
  FOREBAY_TRY(WriteOut(tail_));
  // At the first flush the vector has the capacity of a whole table (kBuildTableBytesMax). Clearing
  // would keep that memory, so the vector is replaced.
  if (tail_.capacity() > 2 * kPieceBytes) tail_ = {};
  tail_.clear();
  return {};
}

// The start may lie in the file, in the tail, or in both.
Status TableSpool::ReplaceStart(std::span<const std::byte> bytes) {
  FOREBAY_CHECK(bytes.size() <= size());
  const auto in_file =
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), file_bytes_));
  if (in_file > 0) FOREBAY_TRY(file_->Write(0, bytes.first(in_file)));
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(in_file), bytes.end(), tail_.begin());
  return {};
}

Status TableSpool::Read(std::uint64_t offset, std::span<std::byte> bytes) const {
  FOREBAY_CHECK(offset <= size() && bytes.size() <= size() - offset);
  if (offset < file_bytes_) {
    const auto in_file =
        static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), file_bytes_ - offset));
    FOREBAY_TRY(file_->Read(offset, bytes.first(in_file)));
    bytes = bytes.subspan(in_file);
    offset += in_file;
  }
  if (bytes.empty()) return {};
  const auto from = tail_.begin() + static_cast<std::ptrdiff_t>(offset - file_bytes_);
  std::copy_n(from, bytes.size(), bytes.begin());
  return {};
}

Status TableSpool::ForEachPiece(
    const std::function<Status(std::span<const std::byte>)>& visit) const {
  // Pieces of one size and not the whole table, because a table that has gone to the file does not
  // fit in memory.
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < file_bytes_; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(
        std::min<std::uint64_t>(kPieceBytes, file_bytes_ - at)));
    FOREBAY_TRY(file_->Read(at, piece));
    FOREBAY_TRY(visit(piece));
  }
  for (std::span<const std::byte> left = tail_; !left.empty();) {
    const std::size_t count = std::min(kPieceBytes, left.size());
    FOREBAY_TRY(visit(left.first(count)));
    left = left.subspan(count);
  }
  return {};
}

void TableSpool::Clear() {
  file_.reset();
  file_bytes_ = 0;
  tail_.clear();
}

Result<ImageBytes> TableSpool::Release() {
  if (!file_.has_value()) return ImageBytes(std::exchange(tail_, {}));
  // The mapping keeps the unnamed file alive after its descriptor is closed.
  // The tail goes to the file first, so that the mapping holds every byte.
  FOREBAY_TRY(Flush());
  Result<ImageBytes> mapped = ImageBytes::MapFd(file_->fd(), file_bytes_);
  Clear();
  return mapped;
}

Result<std::span<const std::byte>> SpoolReader::Take(std::size_t count) {
  // The subtraction cannot wrap, because `taken_` never exceeds the size.
  if (buffer_.size() - taken_ < count) {
    // A row can lie across the end of the buffer: its first bytes move to the front, and the next
    // bytes of the spool are appended.
    const auto used = static_cast<std::ptrdiff_t>(taken_);
    buffer_.erase(buffer_.begin(), buffer_.begin() + used);
    taken_ = 0;
    const std::size_t held = buffer_.size();
    const std::uint64_t left = end_ - at_;
    if (left < count - held) {
      return Error(ErrorCode::kDataLoss, "a table of the catalog ends within a row");
    }
    // At least what is asked for, and a whole piece if the spool has one.
    const auto fresh = static_cast<std::size_t>(
        std::min<std::uint64_t>(left, std::max(kPieceBytes, count - held)));
    buffer_.resize(held + fresh);
    FOREBAY_TRY(spool_.Read(at_, std::span(buffer_).subspan(held)));
    at_ += fresh;
  }
  const std::span<const std::byte> bytes = std::span(buffer_).subspan(taken_, count);
  taken_ += count;
  return bytes;
}

}  // namespace forebay::catalog
