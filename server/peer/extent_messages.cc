// The image is verified by who asked for it (stage::VerifySupplied), so only its size is checked
// here.
#include "server/peer/extent_messages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include "proto/contract/limits.h"
#include "server/peer/message_parts.h"

namespace forebay::peer {

using google::protobuf::io::CodedInputStream;

ExtentSender::ExtentSender(const ExtentHead& head, std::span<const std::byte> image,
                           std::shared_ptr<const void> owner, std::shared_ptr<SlicePins> pins)
    : head_(head), image_(image), owner_(std::move(owner)), pins_(std::move(pins)) {}

bool ExtentSender::Next(grpc::ByteBuffer& message) {
  // Alone in its message, so that the receiver can allocate memory before the image comes.
  if (!std::exchange(has_sent_head_, true)) {
    ByteWriter head;
    head.Varint(kImageBytesTag);
    head.Varint(head_.image_bytes);
    head.Varint(kImageChecksumTag);
    head.Le(head_.checksum);
    head.Varint(kImageIsPackedTag);
    head.Varint(head_.is_packed ? 1 : 0);
    message = JoinMessage(std::move(head), kImagePayloadTag, 0, {});
    return false;
  }
  const std::size_t bytes =
      std::min<std::size_t>(limits::kPeerChunkBytes, image_.size() - sent_);
  std::vector<grpc::Slice> payload;
  payload.push_back(pins_->Make(image_.subspan(sent_, bytes), owner_));
  message = JoinMessage(ByteWriter(), kImagePayloadTag, bytes, std::move(payload));
  sent_ += bytes;
  return sent_ == image_.size();
}

Result<ExtentHead> ExtentReceiver::TakeHead(grpc::ByteBuffer& message) {
  const std::size_t message_bytes = message.Length();
  grpc::ProtoBufferReader slices(&message);
  CodedInputStream in(&slices);
  ExtentHead head;
  std::uint64_t is_packed = 0;
  for (std::uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    // A payload, or a field of another version, is refused like a field of the wrong type.
    bool is_good = false;
    if (tag == kImageBytesTag) is_good = in.ReadVarint64(&head.image_bytes);
    if (tag == kImageChecksumTag) is_good = in.ReadLittleEndian64(&head.checksum);
    if (tag == kImageIsPackedTag) is_good = in.ReadVarint64(&is_packed);
    if (!is_good) return Malformed("the description of an extent has a wrong field");
  }
  head.is_packed = is_packed != 0;
  if (static_cast<std::size_t>(in.CurrentPosition()) != message_bytes) {
    return Malformed("the description of an extent is incomplete");
  }
  // Before any memory is allocated for it.
  if (head.image_bytes == 0 || head.image_bytes > limits::kExtentBytesMax) {
    return Error(ErrorCode::kInternal,
                 fmt::format("an extent of {} bytes is announced; between 1 and {} are possible",
                             head.image_bytes, limits::kExtentBytesMax));
  }
  return head;
}

Status ExtentReceiver::Take(grpc::ByteBuffer& message) {
  const std::size_t message_bytes = message.Length();
  grpc::ProtoBufferReader slices(&message);
  CodedInputStream in(&slices);
  if (in.ReadTag() != kImagePayloadTag) return Malformed("a part of an extent has no bytes");
  FOREBAY_ASSIGN(const std::uint32_t bytes, ReadPayloadLength(in, message_bytes));
  // Each message must bring something, so that an answer is bounded.
  if (bytes == 0) return Malformed("a part of an extent has no bytes");
  // Before the copy: `received_` never exceeds the image.
  if (bytes > image_.size() - received_) {
    return Malformed("there are more bytes than the extent has");
  }
  if (!in.ReadRaw(image_.data() + received_, static_cast<int>(bytes))) {
    return Malformed("it ends within its payload");
  }
  received_ += bytes;
  return {};
}

Status ExtentReceiver::Finish() const {
  if (received_ == image_.size()) return {};
  return Error(ErrorCode::kInternal, fmt::format("the answer ended after {} of {} bytes",
                                                 received_, image_.size()));
}

}  // namespace forebay::peer
