// An answer is either one message without bytes, which says that the part is not there yet, or one
// with a failure, or one or more messages with bytes. Everything else is an error, because a node
// that sent empty messages for ever would keep a thread of this one.
#include "server/peer/part_receiver.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <grpcpp/support/proto_buffer_reader.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/peer/message_parts.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

// A part describes one object of a catalog, so it has no more bytes than a catalog may have.
constexpr std::uint64_t kPartBytesMax = limits::kCatalogFileBytesMax;

constexpr std::uint64_t kAgeMsMax = 86'400'000;  // a failure of this age is as good as an older one

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
  if (answer_ && !(answer_->is_there && is_there)) {
    return Malformed("it follows the end of a catalog part");
  }
  if (reply.has_failure()) return TakeFailure(reply);
  if (is_there == payload.empty()) {
    return Malformed(is_there ? "it has no bytes of a catalog part"
                              : "it has bytes of a catalog part that is not there yet");
  }
  if (payload.size() > limits::kPeerChunkBytes || payload.size() > kPartBytesMax - part_.size()) {
    return Malformed("a catalog part is too long");
  }
  answer_ = stage::PartAnswer{.is_there = is_there, .failure = {}};
  return part_.Append(std::as_bytes(std::span(payload)));
}

Status PartReceiver::TakeFailure(const v1::CatalogPartReply& reply) {
  const v1::PartFailure& failure = reply.failure();
  const bool is_known = failure.code() > 0 &&
                        failure.code() <= static_cast<std::uint32_t>(ErrorCode::kUnauthenticated);
  const Error error(is_known ? static_cast<ErrorCode>(failure.code()) : ErrorCode::kInternal,
                    PrintableLine(std::string_view(failure.message())
                                      .substr(0, limits::kPeerErrorBytesMax)));
  // A node that shuts down, or does not answer, has no failure to tell (stage::ErrorForOthers).
  const bool is_no_failure = error.code() == ErrorCode::kCancelled || stage::IsNoAnswer(error);
  if (reply.is_there() || !reply.payload().empty() || !is_known || is_no_failure) {
    return Malformed("it says wrongly why there is no catalog part");
  }
  const std::uint64_t age_ms = std::min(failure.age_ms(), kAgeMsMax);
  answer_ = stage::PartAnswer{
      .failure = stage::PartFailure{.error = error,
                                    .age_ns = static_cast<std::int64_t>(age_ms) * 1'000'000,
                                    .is_reported = failure.is_reported()}};
  return {};
}

Result<stage::PartAnswer> PartReceiver::Finish() const {
  if (!answer_) return Error(ErrorCode::kInternal, "the answer has no messages");
  return *answer_;
}

}  // namespace forebay::peer
