// PartReceiver: puts the bytes of a catalog part together from the messages of another node's
// answer. It bounds what a node may send; whether the bytes are a part at all is checked when they
// are complete (catalog::DecodePart).
#pragma once

#include <optional>

#include <grpcpp/support/byte_buffer.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/result.h"
#include "server/catalog/storage/table_spool.h"
#include "server/stage/part_source.h"

namespace forebay::peer {

// Call Take with each message, in order, then Finish. Not thread-safe. Unusable after an error.
class PartReceiver {
 public:
  // `part`, which is empty, gets the bytes. Borrowed.
  explicit PartReceiver(catalog::TableSpool& part) : part_(part) {}

  // kInternal: no node of this version sends such an answer. Other errors: TableSpool::Append.
  Status Take(const grpc::ByteBuffer& message);
  // Returns what the node has answered. kInternal: no message was taken.
  Result<stage::PartAnswer> Finish() const;

 private:
  Status TakeFailure(const v1::CatalogPartReply& reply);

  catalog::TableSpool& part_;
  std::optional<stage::PartAnswer> answer_;
};

}  // namespace forebay::peer
