// protobuf parses the messages; a message is bounded by limits::kPeerMessageBytesMax, and takes a
// small multiple of its size in memory.
#include "server/peer/peer_requests.h"

#include <fmt/format.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"

namespace forebay::peer {
namespace {

template <typename Message>
Status Parse(const grpc::ByteBuffer& bytes, Message& message) {
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
               fmt::format("a message of {} bytes is no request", bytes.Length()));
}

template <typename Message>
PeerRequest RequestOf(const Message& message) {
  return {.identity = message.identity(),
          .dataset = message.dataset(),
          .catalog_fingerprint = message.catalog_fingerprint()};
}

template <typename Message>
void SetRequest(const PeerRequest& request, Message& message) {
  message.set_identity(request.identity);
  message.set_dataset(request.dataset);
  message.set_catalog_fingerprint(request.catalog_fingerprint);
}

// A copy more than gRPC's own serialisation makes; requests are short.
grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

grpc::ByteBuffer WriteRequest(const RowsAsked& asked) {
  v1::SamplesRequest message;
  SetRequest(asked.request, message);
  message.mutable_samples()->Reserve(static_cast<int>(asked.rows.size()));
  message.mutable_fields()->Reserve(static_cast<int>(asked.rows.size()));
  // Two lists of numbers, which protobuf packs, are half as long as a list of messages.
  for (const fetch::Row& row : asked.rows) {
    message.add_samples(row.sample.value());
    message.add_fields(row.field.value());
  }
  message.set_needs_runs(asked.need == fetch::Need::kRuns);
  return ToBuffer(message);
}

grpc::ByteBuffer WriteRequest(const ExtentAsked& asked) {
  v1::ExtentRequest message;
  SetRequest(asked.request, message);
  message.set_extent(asked.extent.value());
  return ToBuffer(message);
}

Result<RowsAsked> ParseRowsAsked(const grpc::ByteBuffer& bytes) {
  v1::SamplesRequest message;
  FOREBAY_TRY(Parse(bytes, message));
  // Before anything is reserved for the rows.
  const auto count = static_cast<std::uint32_t>(message.samples_size());
  if (count > limits::kPeerRowsMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} rows are asked for in one call, at most {} are possible", count,
                             limits::kPeerRowsMax));
  }
  if (count == 0 || message.fields_size() != message.samples_size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} samples and {} fields are asked for; each row has one of both",
                             count, message.fields_size()));
  }
  RowsAsked asked{.request = RequestOf(message),
                  .rows = {},
                  .need = message.needs_runs() ? fetch::Need::kRuns : fetch::Need::kSamples};
  asked.rows.reserve(count);
  for (int i = 0; i < message.samples_size(); ++i) {
    asked.rows.push_back({.sample = SampleId(message.samples(i)),
                          .field = FieldId(message.fields(i)),
                          .memory = {}});
  }
  return asked;
}

Result<ExtentAsked> ParseExtentAsked(const grpc::ByteBuffer& bytes) {
  v1::ExtentRequest message;
  FOREBAY_TRY(Parse(bytes, message));
  return ExtentAsked{.request = RequestOf(message), .extent = ExtentId(message.extent())};
}

}  // namespace forebay::peer
