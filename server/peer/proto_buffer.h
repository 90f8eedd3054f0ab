// Messages between protobuf and the bytes that gRPC carries. Requests have no payload, so protobuf
// writes and parses them; a message is bounded by limits::kPeerMessageBytesMax, and takes a small
// multiple of its size in memory.
#pragma once

#include <fmt/format.h>
#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"

namespace forebay::peer {

// kInvalidArgument: the bytes are no such message, or too many.
inline Status FromBuffer(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  // The reader wants a buffer that is not const; a copy refers to the same slices.
  grpc::ByteBuffer buffer(bytes);
  // gRPC has checked that too, but fuzzers and tests come here without it.
  bool is_good = bytes.Length() <= limits::kPeerMessageBytesMax;
  // An empty message has no slices, and is a message all the same.
  if (is_good && bytes.Length() > 0) {
    grpc::ProtoBufferReader slices(&buffer);
    is_good = message.ParseFromZeroCopyStream(&slices);
  }
  if (is_good) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("a message of {} bytes is no request, or no answer", bytes.Length()));
}

// Makes one copy more than gRPC's own serialisation, which does not matter for short messages.
inline grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace forebay::peer
