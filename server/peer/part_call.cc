// The thread that waits reads the messages itself, with gRPC's blocking calls: a part may go to a
// scratch file, and gRPC's own threads must not wait for a disk.
#include "server/peer/part_call.h"

#include <span>
#include <utility>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "server/peer/channel_settings.h"
#include "server/peer/message_parts.h"

namespace forebay::peer {

PartCall::PartCall(PeerLink& link, io::Clock& clock, const PartAsked& asked,
                   std::int64_t deadline_ns)
    : PeerCall(/*bytes=*/0, deadline_ns), link_(link), clock_(clock), asked_(asked) {}

void PartCall::Begin(const std::shared_ptr<grpc::Channel>& channel) {
  const MutexLock lock(mutex_);
  channel_ = channel;
  changed_.NotifyAll();
}

void PartCall::Fail(const Error& error) {
  const MutexLock lock(mutex_);
  error_ = error;
  changed_.NotifyAll();
}

Result<bool> PartCall::Await(catalog::TableSpool& part) {
  std::shared_ptr<grpc::Channel> channel;
  {
    const MutexLock lock(mutex_);
    while (!channel_ && !error_) changed_.Wait(mutex_);
    if (error_) return *error_;
    channel = channel_;
  }
  const std::uint64_t before = part.size();
  Result<bool> received = Receive(channel, part);
  link_.Count(part.size() - before, !received.has_value());
  link_.Ended(*this);
  return received;
}

// Reads to the end also after an error of this node, because gRPC wants the call finished.
Result<bool> PartCall::Receive(const std::shared_ptr<grpc::Channel>& channel,
                               catalog::TableSpool& part) {
  v1::CatalogPartRequest request;
  request.set_identity(asked_.request.identity);
  request.set_dataset(asked_.request.dataset);
  request.set_object_hash(asked_.object_hash);
  request.set_object(asked_.object.value());
  context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
  const auto stub = v1::Peer::NewStub(channel);
  const auto reader = stub->CatalogPart(&context_, request);
  Status taken;
  bool is_there = false;
  std::uint64_t bytes = 0;
  v1::CatalogPartReply reply;
  while (reader->Read(&reply)) {
    if (!taken.has_value()) continue;
    is_there = reply.is_there();
    bytes += reply.payload().size();
    // A part describes one object of a catalog, so it has no more bytes than a catalog may have.
    taken = reply.payload().size() > limits::kPeerChunkBytes ||
                    bytes > limits::kCatalogFileBytesMax || (!is_there && bytes > 0)
                ? Status(Malformed("a part of a catalog of an impossible size"))
                : part.Append(std::as_bytes(std::span(reply.payload())));
    if (!taken.has_value()) context_.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  if (!taken.has_value()) return taken.error().WithContext("node " + link_.address());
  if (!status.ok()) return FromGrpcStatus(status, link_.address());
  return is_there;
}

}  // namespace forebay::peer
