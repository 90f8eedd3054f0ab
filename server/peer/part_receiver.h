// PartReceiver: puts the bytes of a catalog part together from the messages of another node's
// answer. It bounds what a node may send; whether the bytes are a part at all is checked when they
// are complete (catalog::DecodePart).
#pragma once

#include <cstdint>

#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/result.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::peer {

// Call Take with each message, in order, then Finish. Not thread-safe. Unusable after an error.
class PartReceiver {
 public:
  // `part`, which is empty, gets the bytes. Borrowed.
  explicit PartReceiver(catalog::TableSpool& part) : part_(part) {}

  // kInternal: no node of this version sends such an answer. Other errors: TableSpool::Append.
  Status Take(const grpc::ByteBuffer& message);
  // Whether the node has sent a part; false: it has said that it does not have it yet.
  // kInternal: no message was taken.
  Result<bool> Finish() const;

 private:
  enum class Answer : std::uint8_t { kNone, kNotYet, kPart };

  catalog::TableSpool& part_;
  Answer answer_ = Answer::kNone;
};

}  // namespace forebay::peer
