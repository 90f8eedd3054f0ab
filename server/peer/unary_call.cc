// Uses gRPC's callback API. The bytes of the call do not count against what may be in flight, and
// it is not queued behind rows: staging or cataloguing waits for it.
#include "server/peer/unary_call.h"

#include <utility>

#include <grpcpp/generic/generic_stub.h>

#include "server/peer/channel_settings.h"

namespace forebay::peer {

UnaryCall::UnaryCall(PeerLink& link, io::Clock& clock, UnaryRequest request, Done done)
    : PeerCall(/*bytes=*/0, request.deadline_ns),
      link_(link),
      clock_(clock),
      request_(std::move(request)),
      done_(std::move(done)) {}

void UnaryCall::Begin(const std::shared_ptr<grpc::Channel>& channel) {
  context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
  grpc::GenericStub(channel).UnaryCall(
      &context_, "/forebay.v1.Peer/" + request_.method, {}, &request_.message, &reply_,
      [this](const grpc::Status& status) {
        if (status.ok()) {
          done_(reply_);
        } else {
          done_(FromGrpcStatus(status, link_.address()));
        }
        link_.Ended(*this);  // destroys this object
      });
}

}  // namespace forebay::peer
