// A message is one slice for the head and the slices of the payload. gRPC sends slices from where
// they lie.
#include "server/peer/message_parts.h"

#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"

namespace forebay::peer {

grpc::ByteBuffer JoinMessage(ByteWriter head, std::uint32_t payload_tag,
                             std::uint64_t payload_bytes, std::vector<grpc::Slice> payload) {
  if (payload_bytes > 0) {
    head.Varint(payload_tag);
    head.Varint(payload_bytes);
  }
  payload.insert(payload.begin(), grpc::Slice(head.bytes().data(), head.size()));
  return grpc::ByteBuffer(payload.data(), payload.size());
}

Result<std::uint32_t> ReadPayloadLength(google::protobuf::io::CodedInputStream& in,
                                        std::size_t message_bytes) {
  std::uint32_t length = 0;
  if (!in.ReadVarint32(&length)) return Malformed("it ends within the length of its payload");
  const auto read = static_cast<std::size_t>(in.CurrentPosition());
  if (length != message_bytes - read) return Malformed("its payload is not the rest of it");
  if (length > limits::kPeerChunkBytes) return Malformed("its payload is too long");
  return length;
}

Error Malformed(const char* what) {
  return Error(ErrorCode::kInternal, fmt::format("a message is malformed: {}", what));
}

}  // namespace forebay::peer
