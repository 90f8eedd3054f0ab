// An answer is either one message without bytes, which says that the part is not there yet, or one
// or more messages with bytes. Everything else is an error, because a node that sent empty messages
// for ever would keep a thread of this one.
#include "server/peer/part_receiver.h"

#include <span>
#include <string>

#include <grpcpp/support/proto_buffer_reader.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/peer/message_parts.h"

namespace forebay::peer {
namespace {

// A part describes one object of a catalog, so it has no more bytes than a catalog may have.
constexpr std::uint64_t kPartBytesMax = limits::kCatalogFileBytesMax;

}  // namespace

Status PartReceiver::Take(const grpc::ByteBuffer& message) {
  v1::CatalogPartReply reply;
  // An empty message has no slices: it says that the part is not there yet.
  if (message.Length() > 0) {
    grpc::ByteBuffer slices(message);  // the reader wants one that is not const
    grpc::ProtoBufferReader reader(&slices);
    if (!reply.ParseFromZeroCopyStream(&reader)) return Malformed("it is no part of a catalog");
  }
  const bool is_there = reply.is_there();
  const std::string& payload = reply.payload();
  if (answer_ == Answer::kNotYet || (answer_ == Answer::kPart && !is_there)) {
    return Malformed("it follows the end of a catalog part");
  }
  if (is_there == payload.empty()) {
    return Malformed(is_there ? "it has no bytes of a catalog part"
                              : "it has bytes of a catalog part that is not there yet");
  }
  if (payload.size() > limits::kPeerChunkBytes || payload.size() > kPartBytesMax - part_.size()) {
    return Malformed("a catalog part is too long");
  }
  answer_ = is_there ? Answer::kPart : Answer::kNotYet;
  return part_.Append(std::as_bytes(std::span(payload)));
}

Result<bool> PartReceiver::Finish() const {
  if (answer_ == Answer::kNone) return Error(ErrorCode::kInternal, "the answer has no messages");
  return answer_ == Answer::kPart;
}

}  // namespace forebay::peer
