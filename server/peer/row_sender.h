// RowSender: makes the chunks of an answer to a request for rows. The chunks refer to the rows
// where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "proto/contract/byte_cursor.h"
#include "server/fetch/local_rows.h"
#include "server/peer/chunk_buffers.h"
#include "server/peer/slice_pins.h"

namespace forebay::peer {

// Writes what a message says of a row: its length and checksum, or its error. `row` has number
// `index` in `found`; `dataset` is the hash of the data set's name.
void WriteRowEnd(std::uint64_t dataset, const fetch::Row& row, const fetch::FoundRows& found,
                 std::size_t index, ByteWriter& head);

// Not thread-safe.
class RowSender {
 public:
  // `dataset` is the hash of the data set's name; `rows` names what was found, in the same order.
  // There is at least one row.
  RowSender(std::uint64_t dataset, std::vector<fetch::Row> rows,
            std::shared_ptr<const fetch::FoundRows> found, std::shared_ptr<SlicePins> pins,
            std::shared_ptr<ChunkBuffers> buffers);

  // Makes the next chunk. Returns true if it is the last one; then there is no further call.
  bool Next(grpc::ByteBuffer& chunk);

 private:
  void AddBytes(std::span<const std::byte> bytes);
  void AddCopied();
  void EndRow();

  const std::uint64_t dataset_;
  const std::vector<fetch::Row> rows_;
  const std::shared_ptr<const fetch::FoundRows> found_;
  const std::shared_ptr<SlicePins> pins_;
  const std::shared_ptr<ChunkBuffers> buffers_;
  std::size_t row_ = 0;     // that is sent next
  std::size_t run_ = 0;     // of this row
  std::size_t offset_ = 0;  // in this run
  // The chunk that is being made.
  ByteWriter head_;
  std::vector<grpc::Slice> slices_;
  // Short runs are not worth a slice each: they are copied to this buffer, one after another.
  ChunkBuffers::Buffer buffer_;
  std::size_t buffer_used_ = 0;
  std::size_t copied_begin_ = 0;  // of what no slice has yet
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace forebay::peer
