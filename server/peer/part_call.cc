// The thread that waits reads the messages itself, from a completion queue of its own: a part may
// go to a scratch file, and gRPC's own threads must not wait for a disk.
#include "server/peer/part_call.h"

#include <utility>

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include "server/peer/channel_settings.h"
#include "server/peer/part_receiver.h"

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

Result<stage::PartAnswer> PartCall::Await(catalog::TableSpool& part) {
  std::shared_ptr<grpc::Channel> channel;
  {
    const MutexLock lock(mutex_);
    while (!channel_ && !error_) changed_.Wait(mutex_);
    if (error_) return *error_;
    channel = channel_;
  }
  const std::uint64_t before = part.size();
  Result<stage::PartAnswer> received = Receive(channel, part);
  link_.Count(part.size() - before, !received.has_value());
  link_.Ended(*this);
  return received;
}

// Messages come as bytes, because gRPC drops those that it cannot parse without a word, and would
// then wait until the deadline for an end that the other node cannot reach.
Result<stage::PartAnswer> PartCall::Receive(const std::shared_ptr<grpc::Channel>& channel,
                                            catalog::TableSpool& part) {
  context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
  // One operation is under way at a time, so its outcome is the next one of the queue.
  grpc::CompletionQueue queue;
  const auto is_good = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call =
      grpc::GenericStub(channel).PrepareCall(&context_, "/forebay.v1.Peer/CatalogPart", &queue);
  call->StartCall(nullptr);
  bool goes_on = is_good();
  if (goes_on) {
    call->WriteLast(WriteRequest(asked_), grpc::WriteOptions(), nullptr);
    goes_on = is_good();
  }
  PartReceiver receiver(part);
  Status taken;
  while (goes_on && taken.has_value()) {
    grpc::ByteBuffer message;
    call->Read(&message, nullptr);
    goes_on = is_good();
    if (goes_on) taken = receiver.Take(message);
  }
  // What the other node still sends is not wanted. gRPC wants the call finished all the same.
  if (!taken.has_value()) context_.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  static_cast<void>(is_good());
  queue.Shutdown();
  if (!taken.has_value()) return taken.error().WithContext("node " + link_.address());
  if (!status.ok()) return FromGrpcStatus(status, link_.address());
  Result<stage::PartAnswer> answer = receiver.Finish();
  if (!answer.has_value()) return answer.error().WithContext("node " + link_.address());
  // A failure that the node has heard of names the node that has found it.
  if (answer->failure && !answer->failure->is_reported) {
    answer->failure->error = answer->failure->error.WithContext("node " + link_.address());
  }
  return answer;
}

}  // namespace forebay::peer
