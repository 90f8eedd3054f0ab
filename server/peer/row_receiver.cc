// A chunk says first which rows end in it. The payload is then cut by the lengths of the rows'
// memory: the rest of each row that ends, and last the beginning of one that does not. Each cut is
// checked against what is left of the payload and of the row.
#include "server/peer/row_receiver.h"

#include <utility>

#include <fmt/format.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/peer/message_parts.h"
#include "server/peer/row_checksum.h"

namespace forebay::peer {

using google::protobuf::io::CodedInputStream;

namespace {

constexpr int kEndBytesMax = static_cast<int>(limits::kPeerErrorBytesMax) + 64;

}  // namespace

Result<RowReceiver::End> RowReceiver::ReadEnd(CodedInputStream& in) {
  End end;
  int length = 0;
  if (!in.ReadVarintSizeAsInt(&length) || length > kEndBytesMax) {
    return Malformed("the description of a row has a wrong length");
  }
  // Fields are read up to this limit, however long they claim to be.
  const CodedInputStream::Limit limit = in.PushLimit(length);
  bool is_good = true;
  while (is_good) {
    const std::uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    switch (tag) {
      case kRowBytesTag:
        is_good = in.ReadVarint64(&end.bytes);
        break;
      case kRowChecksumTag:
        is_good = in.ReadLittleEndian64(&end.checksum);
        break;
      case kRowCodeTag:
        is_good = in.ReadVarint32(&end.code);
        break;
      case kRowMessageTag: {
        int bytes = 0;
        is_good = in.ReadVarintSizeAsInt(&bytes) && bytes <= in.BytesUntilLimit() &&
                  in.ReadString(&end.message, bytes);
        break;
      }
      default:
        is_good = false;
    }
  }
  // The description must fill its length: the message may be shorter than that.
  if (!is_good || in.BytesUntilLimit() != 0) {
    return Malformed("the description of a row has unknown or incomplete fields");
  }
  in.PopLimit(limit);
  return end;
}

Status RowReceiver::Take(grpc::ByteBuffer& chunk) {
  const std::size_t message_bytes = chunk.Length();
  grpc::ProtoBufferReader slices(&chunk);
  CodedInputStream in(&slices);
  ends_.clear();
  std::uint32_t tag = in.ReadTag();
  for (; tag == kRowEndsTag; tag = in.ReadTag()) {
    // Before it is kept, so that the list is not longer than the request.
    if (ends_.size() == rows_.size() - next_) {
      return Malformed("it ends more rows than were asked for");
    }
    FOREBAY_ASSIGN(End end, ReadEnd(in));
    ends_.push_back(std::move(end));
  }
  std::uint64_t payload = 0;
  if (tag == kRowPayloadTag) {
    FOREBAY_ASSIGN(payload, ReadPayloadLength(in, message_bytes));
  } else if (tag == kRowsCarriedTag) {
    return TakeCarried(in, message_bytes);
  } else if (tag != 0 || static_cast<std::size_t>(in.CurrentPosition()) != message_bytes) {
    return Malformed("it has an unknown field");
  }
  // Each chunk must bring something, so that an answer is bounded.
  if (ends_.empty() && payload == 0) return Malformed("it is empty");
  for (const End& end : ends_) FOREBAY_TRY(EndRow(end, in, payload));
  if (payload == 0) return {};
  if (next_ == rows_.size()) return Malformed("it has bytes beyond the last row");
  // A row that is complete has a checksum, so what is left must be less than a row.
  if (payload >= rows_[next_].memory.size() - filled_) {
    return Malformed("it has a whole row without its checksum");
  }
  return Fill(in, payload);
}

// All rows end in the one message of such an answer, and nothing follows them.
Status RowReceiver::TakeCarried(CodedInputStream& in, std::size_t message_bytes) {
  std::uint32_t is_carried = 0;
  if (!in.ReadVarint32(&is_carried) || is_carried != 1 ||
      static_cast<std::size_t>(in.CurrentPosition()) != message_bytes) {
    return Malformed("it neither has the bytes of its rows nor says that they were sent over MPI");
  }
  if (!may_be_carried_) {
    return Malformed("it says that its rows were sent over MPI, which they were not asked for");
  }
  if (next_ != 0 || filled_ != 0 || ends_.size() != rows_.size()) {
    return Malformed("it does not have the checksums of all rows");
  }
  std::vector<std::uint64_t> checksums;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i].code != 0) return Malformed("a row that was sent has an error");
    FOREBAY_TRY(CheckLength(rows_[i], ends_[i]));
    checksums.push_back(ends_[i].checksum);
  }
  next_ = rows_.size();
  carried_ = std::move(checksums);
  return {};
}

Status RowReceiver::VerifyCarried(std::size_t first_row, std::size_t end_row) const {
  for (std::size_t i = first_row; i < end_row; ++i) FOREBAY_TRY(CheckSum(rows_[i], carried_[i]));
  return {};
}

Status RowReceiver::CheckLength(const fetch::Row& row, const End& end) const {
  if (end.bytes == row.memory.size()) return {};
  return Error(ErrorCode::kInternal, fmt::format("{} has {} bytes here and {} on the other node",
                                                 NameOf(row), row.memory.size(), end.bytes));
}

// Computes the checksum of the slot's memory and not of the message, so that it covers the copy,
// too.
Status RowReceiver::CheckSum(const fetch::Row& row, std::uint64_t checksum) const {
  if (Checksum(RowIdentity(dataset_, row, row.memory.size()), row.memory) == checksum) return {};
  return Error(ErrorCode::kDataLoss,
               fmt::format("{} came with bytes that do not match its checksum", NameOf(row)));
}

Status RowReceiver::EndRow(const End& end, CodedInputStream& in, std::uint64_t& payload) {
  const fetch::Row& row = rows_[next_];
  if (end.code != 0) {
    if (filled_ > 0) return Malformed("a row that has begun has an error");
    // Only the first error is reported; other rows still arrive.
    const bool is_known = end.code <= static_cast<std::uint32_t>(ErrorCode::kUnauthenticated);
    if (!error_) {
      error_ = Error(is_known ? static_cast<ErrorCode>(end.code) : ErrorCode::kInternal,
                     fmt::format("{}: {}", NameOf(row), PrintableLine(end.message)));
    }
    ++next_;
    return {};
  }
  FOREBAY_TRY(CheckLength(row, end));
  // Not negative: Take and Fill never let `filled_` reach the end of a row that has not ended.
  const std::uint64_t rest = row.memory.size() - filled_;
  if (rest > payload) return Malformed("it has fewer bytes than the rows that end in it");
  payload -= rest;
  FOREBAY_TRY(Fill(in, rest));
  FOREBAY_TRY(CheckSum(row, end.checksum));
  ++next_;
  filled_ = 0;
  return {};
}

// The only copy: from the slices of the message to where the row is wanted. The caller has checked
// that the row has space.
Status RowReceiver::Fill(CodedInputStream& in, std::uint64_t bytes) {
  if (bytes == 0) return {};  // a row without bytes may have no memory
  if (!in.ReadRaw(rows_[next_].memory.data() + filled_, static_cast<int>(bytes))) {
    return Malformed("it ends within its payload");
  }
  filled_ += bytes;
  return {};
}

Status RowReceiver::Finish() const {
  if (next_ < rows_.size()) {
    return Error(ErrorCode::kInternal,
                 fmt::format("the answer ended after {} of {} rows", next_, rows_.size()));
  }
  if (error_) return *error_;
  return {};
}

std::string RowReceiver::NameOf(const fetch::Row& row) const {
  return fmt::format("field {} of sample {}{}", row.field.value(), row.sample.value(),
                     row.chunk == 0 ? "" : fmt::format(", its chunk {}", row.chunk));
}

}  // namespace forebay::peer
