// Fills a chunk with rows until it is full. The checksum of a row is taken when its last byte goes
// into a chunk, of the same memory that gRPC then sends: a bit that flips later is found by the
// receiver.
#include "server/peer/row_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/contract/limits.h"
#include "server/peer/message_parts.h"
#include "server/peer/row_checksum.h"

namespace forebay::peer {
namespace {

// A slice costs gRPC and the kernel about as much as a copy of so many bytes.
constexpr std::size_t kCopiedBytesMax = 8192;
// A chunk of tiny rows is full when their descriptions take this.
constexpr std::size_t kHeadBytesMax = 256 * 1024;

std::uint64_t VarintBytes(std::uint64_t value) {
  std::uint64_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

}  // namespace

// Writes the row straight to the head of the chunk, because there may be thousands of rows in it.
void WriteRowEnd(std::uint64_t dataset, const fetch::Row& row, const fetch::FoundRows& found,
                 std::size_t index, ByteWriter& head) {
  head.Varint(kRowEndsTag);
  if (const std::optional<Error>& error = found.error(index)) {
    ByteWriter end;
    end.Varint(kRowCodeTag);
    end.Varint(static_cast<std::uint64_t>(error->code()));
    end.Varint(kRowMessageTag);
    end.String(error->message().substr(0, limits::kPeerErrorBytesMax));
    head.Varint(end.size());
    head.Bytes(end.bytes());
    return;
  }
  const std::uint64_t bytes = found.bytes(index);
  // The message has two tags of one byte, a varint, and a checksum.
  head.Varint(2 + VarintBytes(bytes) + sizeof(std::uint64_t));
  head.Varint(kRowBytesTag);
  head.Varint(bytes);
  head.Varint(kRowChecksumTag);
  head.Le(RowChecksum(RowIdentity(dataset, row, bytes), found.runs(index)));
}

RowSender::RowSender(std::uint64_t dataset, std::vector<fetch::Row> rows,
                     std::shared_ptr<const fetch::FoundRows> found,
                     std::shared_ptr<SlicePins> pins, std::shared_ptr<ChunkBuffers> buffers)
    : dataset_(dataset),
      rows_(std::move(rows)),
      found_(std::move(found)),
      pins_(std::move(pins)),
      buffers_(std::move(buffers)) {}

void RowSender::AddBytes(std::span<const std::byte> bytes) {
  payload_bytes_ += bytes.size();
  if (bytes.size() <= kCopiedBytesMax) {
    // All that is copied for a chunk fits in one buffer, because the chunk is not larger.
    if (buffer_ == nullptr) buffer_ = buffers_->Take();
    std::memcpy(buffer_->data() + buffer_used_, bytes.data(), bytes.size());
    buffer_used_ += bytes.size();
    return;
  }
  AddCopied();
  slices_.push_back(pins_->Make(bytes, found_));
}

// Short runs that follow each other become one slice.
void RowSender::AddCopied() {
  if (buffer_used_ == copied_begin_) return;
  slices_.push_back(pins_->Make(
      std::span(*buffer_).subspan(copied_begin_, buffer_used_ - copied_begin_), buffer_));
  copied_begin_ = buffer_used_;
}

void RowSender::EndRow() {
  WriteRowEnd(dataset_, rows_[row_], *found_, row_, head_);
  ++row_;
  run_ = 0;
  offset_ = 0;
}

bool RowSender::Next(grpc::ByteBuffer& chunk) {
  while (row_ < rows_.size() && head_.size() < kHeadBytesMax) {
    const std::span<const std::span<const std::byte>> runs = found_->runs(row_);
    if (run_ == runs.size()) {
      EndRow();
      continue;
    }
    if (payload_bytes_ == limits::kPeerChunkBytes) break;
    const std::span<const std::byte> run = runs[run_].subspan(offset_);
    const std::size_t bytes =
        std::min<std::size_t>(run.size(), limits::kPeerChunkBytes - payload_bytes_);
    if (bytes > 0) AddBytes(run.first(bytes));
    offset_ += bytes;
    if (bytes == run.size()) {
      ++run_;
      offset_ = 0;
    }
  }
  AddCopied();
  buffer_.reset();
  buffer_used_ = copied_begin_ = 0;
  chunk = JoinMessage(std::exchange(head_, ByteWriter()), kRowPayloadTag,
                      std::exchange(payload_bytes_, 0), std::exchange(slices_, {}));
  return row_ == rows_.size();
}

}  // namespace forebay::peer
