// The parts of a message with payload (proto/forebay/v1/peer.proto), which is written and read by
// hand so that the payload is not copied: the fields before the payload, its length, its bytes.
// The bytes that these functions write are an ordinary protobuf message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/result.h"

namespace forebay::peer {

// The tag of a field with its wire type.
inline constexpr std::uint32_t kVarintType = 0;
inline constexpr std::uint32_t kFixed64Type = 1;
inline constexpr std::uint32_t kBytesType = 2;
constexpr std::uint32_t FieldTag(std::uint32_t number, std::uint32_t type) {
  return (number << 3) | type;
}

// The fields of SamplesReply and of RowEnd, and those of ExtentReply.
inline constexpr std::uint32_t kRowEndsTag = FieldTag(1, kBytesType);
inline constexpr std::uint32_t kRowPayloadTag = FieldTag(2, kBytesType);
inline constexpr std::uint32_t kRowsCarriedTag = FieldTag(3, kVarintType);
inline constexpr std::uint32_t kRowBytesTag = FieldTag(1, kVarintType);
inline constexpr std::uint32_t kRowChecksumTag = FieldTag(2, kFixed64Type);
inline constexpr std::uint32_t kRowCodeTag = FieldTag(3, kVarintType);
inline constexpr std::uint32_t kRowMessageTag = FieldTag(4, kBytesType);
inline constexpr std::uint32_t kImageBytesTag = FieldTag(1, kVarintType);
inline constexpr std::uint32_t kImageChecksumTag = FieldTag(2, kFixed64Type);
inline constexpr std::uint32_t kImageIsPackedTag = FieldTag(3, kVarintType);
inline constexpr std::uint32_t kImagePayloadTag = FieldTag(4, kBytesType);

// Returns `head`, followed by the field `payload_tag` with `payload_bytes` bytes in `payload`.
// Without a payload, the message is `head`.
grpc::ByteBuffer JoinMessage(ByteWriter head, std::uint32_t payload_tag,
                             std::uint64_t payload_bytes, std::vector<grpc::Slice> payload);

// To be called after the payload's tag was read from `in`, a message of `message_bytes`: reads the
// length of the payload. The payload must be the whole rest of the message, and at most
// limits::kPeerChunkBytes.
Result<std::uint32_t> ReadPayloadLength(google::protobuf::io::CodedInputStream& in,
                                        std::size_t message_bytes);

// The error for a message that no node of this version sends.
Error Malformed(const char* what);

}  // namespace forebay::peer
