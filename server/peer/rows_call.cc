// gRPC calls OnReadDone for each chunk, one after another, and OnDone after the last of them. The
// rows are filled and verified on gRPC's thread: that is a copy and a checksum of a chunk, and
// never waits.
#include "server/peer/rows_call.h"

#include <utility>

#include <grpcpp/generic/generic_stub.h>

#include "server/peer/channel_settings.h"

namespace forebay::peer {

RowsCall::RowsCall(PeerLink& link, io::Clock& clock, RowsAsked asked, std::uint64_t bytes,
                   std::int64_t deadline_ns, std::stop_token unwanted,
                   fetch::RowSource::Done done)
    : PeerCall(bytes, deadline_ns),
      link_(link),
      clock_(clock),
      asked_(std::move(asked)),
      done_(std::move(done)),
      receiver_(asked_.request.dataset, asked_.rows),
      unwanted_(std::move(unwanted)),
      withdraw_(unwanted_, [this] { link_.Withdraw(*this); }) {}

void RowsCall::Begin(const std::shared_ptr<grpc::Channel>& channel) {
  request_ = WriteRequest(asked_);
  context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
  // Perhaps the link did not know the call yet when it was withdrawn. It ends as soon as it begins.
  if (unwanted_.stop_requested()) context_.TryCancel();
  grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, "/forebay.v1.Peer/Samples", {},
                                                      this);
  // gRPC holds these back until StartCall.
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&chunk_);
  StartCall();
}

void RowsCall::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone says why
  const Status taken = receiver_.Take(chunk_);
  // Gives the memory back before the next message needs some.
  chunk_.Clear();
  if (taken.has_value()) return StartRead(&chunk_);
  error_ = taken.error();
  // Nothing more is read, so nothing more is written to the rows.
  context_.TryCancel();
}

void RowsCall::OnDone(const grpc::Status& status) {
  Status outcome;
  const bool is_withdrawn = !status.ok() && unwanted_.stop_requested();
  // The receiver's error explains more than the cancelled call that followed it.
  if (error_) {
    outcome = error_->WithContext("node " + link_.address());
  } else if (is_withdrawn) {
    outcome = Error(ErrorCode::kCancelled, "nobody waits for the answer any more");
  } else if (!status.ok()) {
    outcome = FromGrpcStatus(status, link_.address());
  } else if (const Status complete = receiver_.Finish(); !complete.has_value()) {
    outcome = complete.error().WithContext("node " + link_.address());
  }
  // A call that was withdrawn says nothing about the link.
  if (!is_withdrawn) link_.Count(outcome.has_value() ? bytes() : 0, !outcome.has_value());
  done_(outcome);
  link_.Ended(*this);  // destroys this object
}

}  // namespace forebay::peer
