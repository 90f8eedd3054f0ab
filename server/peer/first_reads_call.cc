// A unary call with gRPC's callback API. Its bytes do not count against what may be in flight, and
// it is not queued behind rows: an extent waits for it before it is served to anybody.
#include "server/peer/first_reads_call.h"

#include <utility>

#include <grpcpp/generic/generic_stub.h>

#include "server/peer/channel_settings.h"

namespace forebay::peer {

FirstReadsCall::FirstReadsCall(PeerLink& link, io::Clock& clock, const FirstReadsGiven& given,
                               std::int64_t deadline_ns, stage::FirstReadKeepers::Kept kept)
    : PeerCall(/*bytes=*/0, deadline_ns),
      link_(link),
      clock_(clock),
      count_(given.reads.size()),
      kept_(std::move(kept)),
      request_(WriteRequest(given)) {}

void FirstReadsCall::Begin(const std::shared_ptr<grpc::Channel>& channel) {
  context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
  grpc::GenericStub(channel).UnaryCall(
      &context_, "/forebay.v1.Peer/FirstReads", {}, &request_, &reply_,
      [this](const grpc::Status& status) {
        // Parsed before the link destroys this object, and against the number that was sent.
        if (status.ok()) {
          Result<std::vector<std::uint32_t>> differing = ParseFirstReadsReply(reply_, count_);
          kept_(differing.has_value()
                    ? std::move(differing)
                    : differing.error().WithContext("node " + link_.address()));
        } else {
          kept_(FromGrpcStatus(status, link_.address()));
        }
        link_.Ended(*this);
      });
}

}  // namespace forebay::peer
