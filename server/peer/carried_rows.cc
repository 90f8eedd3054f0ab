// A long row is a message of its own, which MPI takes from where it lies and puts where it belongs.
// A message of several pieces is copied by MPI on both sides, which costs less than a message for
// each short row: measured with rows of 4 KiB, half of the CPU time.
#include "server/peer/carried_rows.h"

#include <utility>

#include "proto/contract/byte_cursor.h"
#include "server/peer/message_parts.h"
#include "server/peer/row_sender.h"

namespace forebay::peer {
namespace {

constexpr std::uint64_t kLongRowBytes = 32 * 1024;
constexpr std::uint64_t kSharedMessageBytes = 256 * 1024;  // a message of short rows is full

// Adds rows one after another. Both nodes must see the same lengths, or their messages differ.
class MessageCutter {
 public:
  explicit MessageCutter(CarriedRows& rows) : rows_(rows) {}

  // `pieces` are the bytes of the next row.
  template <typename Pieces>
  void Add(const Pieces& pieces, std::uint64_t bytes) {
    if (bytes >= kLongRowBytes) EndMessage();
    for (const auto& piece : pieces) {
      if (!piece.empty()) AddPiece(piece);
    }
    ++row_;
    bytes_ += bytes;
    if (bytes_ >= kSharedMessageBytes || bytes >= kLongRowBytes) EndMessage();
  }

  void EndMessage() {
    // Rows without bytes stay for the next message: one without bytes would only cost time.
    if (bytes_ == 0) return;
    bytes_ = 0;
    rows_.ends.push_back(row_);
    rows_.payload.ends.push_back(rows_.payload.pieces.size());
  }

 private:
  void AddPiece(std::span<std::byte> piece) { rows_.payload.pieces.push_back(piece); }
  // The carrier only reads what it sends; one type of piece serves both directions.
  void AddPiece(std::span<const std::byte> piece) {
    AddPiece(std::span(const_cast<std::byte*>(piece.data()), piece.size()));  // NOLINT
  }

  CarriedRows& rows_;
  std::size_t row_ = 0;
  std::uint64_t bytes_ = 0;  // of the message that is being made
};

}  // namespace

CarriedRows MemoryToFill(std::span<const fetch::Row> rows) {
  CarriedRows carried;
  MessageCutter cutter(carried);
  for (const fetch::Row& row : rows) cutter.Add(std::span(&row.memory, 1), row.memory.size());
  cutter.EndMessage();
  return carried;
}

CarriedRows BytesToSend(const fetch::FoundRows& found) {
  CarriedRows carried;
  MessageCutter cutter(carried);
  for (std::size_t i = 0; i < found.count(); ++i) cutter.Add(found.runs(i), found.bytes(i));
  cutter.EndMessage();
  return carried;
}

bool AreAllFound(const fetch::FoundRows& found) {
  for (std::size_t i = 0; i < found.count(); ++i) {
    if (found.error(i)) return false;
  }
  return true;
}

grpc::ByteBuffer CarriedAnswer(std::uint64_t dataset, std::span<const fetch::Row> rows,
                               const fetch::FoundRows& found) {
  ByteWriter message;
  for (std::size_t i = 0; i < rows.size(); ++i) WriteRowEnd(dataset, rows[i], found, i, message);
  message.Varint(kRowsCarriedTag);
  message.Varint(1);
  return JoinMessage(std::move(message), kRowPayloadTag, /*payload_bytes=*/0, {});
}

}  // namespace forebay::peer
