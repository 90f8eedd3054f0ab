// gRPC calls OnReadDone for each chunk, one after another, and OnDone after the last of them. The
// rows are filled and verified on gRPC's thread: that is a copy and a checksum of a chunk, and
// never waits. With a carrier, its thread says that a message has arrived, and verifies it at once
// while the bytes are in the processor's cache, if the checksums have come before.
//
// Parts of the call end in any order, so they are counted, and the last one ends the call. After
// the end of gRPC's call its deadline watches nothing any more; an alarm takes its place while
// messages are still under way.
#include "server/peer/rows_call.h"

#include <utility>

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>

#include "server/peer/carried_rows.h"
#include "server/peer/channel_settings.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {

RowsCall::RowsCall(PeerLink& link, io::Clock& clock, RowsWanted wanted)
    : PeerCall(wanted.bytes, wanted.deadline_ns, Watched::kYes),
      link_(link),
      clock_(clock),
      wanted_(std::move(wanted)),
      receiver_(wanted_.asked.request.dataset, wanted_.asked.rows,
                wanted_.carrier.carrier != nullptr),
      withdraw_(wanted_.unwanted, [this] { link_.Withdraw(*this); }) {}

void RowsCall::Begin(const std::shared_ptr<grpc::Channel>& channel) {
  if (wanted_.carrier.carrier != nullptr) PostReceive();
  request_ = WriteRequest(wanted_.asked);
  context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
  grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, "/forebay.v1.Peer/Samples", {},
                                                      this);
  // gRPC holds these back until StartCall.
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&chunk_);
  StartCall();
}

// Posts the receive before the request is sent, so that the bytes never arrive where nobody waits
// for them.
void RowsCall::PostReceive() {
  CarriedRows rows = MemoryToFill(wanted_.asked.rows);
  {
    const MutexLock lock(mutex_);
    row_ends_ = std::move(rows.ends);
    messages_left_ = row_ends_.size();
    parts_ += messages_left_;
  }
  wanted_.asked.payload = wanted_.carrier.carrier->Receive(
      wanted_.carrier.node, rows.payload,
      [this](std::size_t message, const Status& status) { Arrived(message, status); });
}

Status RowsCall::VerifyLocked(std::size_t message) {
  return NoteWrongLocked(
      receiver_.VerifyCarried(message == 0 ? 0 : row_ends_[message - 1], row_ends_[message]));
}

// kDataLoss of the receiver is about bytes that have arrived. The same code in the status of the
// call, or of a row, is an error of the other node's own, such as a pack that does not decode.
Status RowsCall::NoteWrongLocked(Status taken) {
  if (!taken.has_value() && taken.error().code() == ErrorCode::kDataLoss) has_wrong_rows_ = true;
  return taken;
}

// The first error explains more than what follows from it.
void RowsCall::SetErrorLocked(const Error& error) {
  if (!error_) error_ = error.WithContext("node " + link_.address());
}

// Whether the caller has to cancel the messages that are left.
bool RowsCall::TakeCancelLocked() {
  if (messages_left_ == 0) return false;
  return !std::exchange(has_cancelled_, true);
}

void RowsCall::Arrived(std::size_t message, const Status& status) {
  if (status.has_value()) NoteProgress();
  bool has_failed = false;
  {
    const MutexLock lock(mutex_);
    --messages_left_;
    Status taken = status;
    if (taken.has_value() && receiver_.is_carried()) {
      taken = VerifyLocked(message);
    } else if (taken.has_value()) {
      unverified_.push_back(message);
    }
    // What this call has cancelled itself is no error.
    if (!taken.has_value() && !has_cancelled_) {
      if (!error_) has_lost_carrier_ = taken.error().code() == ErrorCode::kUnavailable;
      SetErrorLocked(taken.error());
      has_failed = true;
    }
  }
  // OnDone follows, and cancels the other messages.
  if (has_failed) context_.TryCancel();
  EndPart();
}

// It comes before the answer only if the other node has to wait.
void RowsCall::OnReadInitialMetadataDone(bool ok) {
  // gRPC does not promise that this comes before OnReadDone.
  if (ok && !has_progress() && SaysThatItWaits(context_)) NoteWaits();
}

void RowsCall::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone says why
  NoteProgress();
  Status taken;
  {
    const MutexLock lock(mutex_);
    taken = NoteWrongLocked(receiver_.Take(chunk_));
    // Gives the memory back before the next message needs some.
    chunk_.Clear();
    if (receiver_.is_carried()) {
      for (const std::size_t message : std::exchange(unverified_, {})) {
        if (taken.has_value()) taken = VerifyLocked(message);
      }
    }
    if (!taken.has_value()) SetErrorLocked(taken.error());
  }
  if (taken.has_value()) return StartRead(&chunk_);
  // Nothing more is read, so nothing more is written to the rows.
  context_.TryCancel();
}

void RowsCall::OnDone(const grpc::Status& status) {
  bool must_cancel = false;
  {
    const MutexLock lock(mutex_);
    if (!error_ && !status.ok() && wanted_.unwanted.stop_requested()) {
      error_ = Withdrawn();
    } else if (!error_ && !status.ok()) {
      error_ = FromGrpcStatus(status, link_.address());
    } else if (const Status complete = receiver_.Finish(); !complete.has_value()) {
      SetErrorLocked(complete.error());
    }
    // Cancel came when gRPC's call had ended and this function had not begun.
    if (is_cancelled_ && !error_ && messages_left_ > 0) error_ = WhyCancelled();
    // An answer with all bytes, over gRPC, leaves the receive without a sender.
    const bool is_awaited = !error_ && receiver_.is_carried();
    must_cancel = !is_awaited && TakeCancelLocked();
    if (is_awaited && messages_left_ > 0) {
      ++parts_;
      has_alarm_ = true;
      alarm_.Set(GrpcDeadline(deadline_ns(), clock_),
                 [this](bool has_gone_off) { DeadlineAlarmEnded(has_gone_off); });
    }
  }
  if (must_cancel) wanted_.carrier.carrier->Cancel(wanted_.asked.payload.tag);
  EndPart();
}

void RowsCall::Cancel() {
  context_.TryCancel();
  bool must_cancel = false;
  {
    const MutexLock lock(mutex_);
    is_cancelled_ = true;
    // gRPC's call has ended, and does not tell us any more.
    if (has_alarm_ && messages_left_ > 0) {
      if (!error_) error_ = WhyCancelled();
      must_cancel = TakeCancelLocked();
    }
  }
  if (must_cancel) wanted_.carrier.carrier->Cancel(wanted_.asked.payload.tag);
}

// As a cancelled call of gRPC has it.
Error RowsCall::WhyCancelled() const {
  if (wanted_.unwanted.stop_requested()) return Withdrawn();
  return Error(ErrorCode::kUnavailable, fmt::format("node {}: cancelled", link_.address()));
}

void RowsCall::DeadlineAlarmEnded(bool has_gone_off) {
  bool must_cancel = false;
  {
    const MutexLock lock(mutex_);
    has_alarm_ = false;
    if (has_gone_off && messages_left_ > 0) {
      SetErrorLocked(Error(ErrorCode::kDeadlineExceeded,
                           fmt::format("{} of {} messages with rows did not come within the "
                                       "deadline",
                                       messages_left_, row_ends_.size())));
      must_cancel = TakeCancelLocked();
    }
  }
  if (must_cancel) wanted_.carrier.carrier->Cancel(wanted_.asked.payload.tag);
  EndPart();
}

void RowsCall::EndPart() {
  {
    const MutexLock lock(mutex_);
    // With the last message the alarm has nothing to watch. Its callback takes the mutex, so this
    // object stays until the mutex is free.
    if (--parts_ == 1 && has_alarm_) alarm_.Cancel();
    if (parts_ > 0) return;
  }
  End();
}

void RowsCall::End() {
  Status outcome;
  bool is_carried = false;
  bool has_wrong_rows = false;
  bool has_lost_carrier = false;
  {
    const MutexLock lock(mutex_);
    has_lost_carrier = has_lost_carrier_;
    if (error_) outcome = *error_;
    is_carried = receiver_.is_carried();
    has_wrong_rows = has_wrong_rows_;
  }
  if (has_wrong_rows) link_.CountWrong();
  if (!outcome.has_value()) {
    const std::optional<std::int64_t> again_ns = wanted_.retry.AgainNs(
        outcome.error(), clock_.NowNs(), deadline_ns(),
        was_interrupted() || has_lost_carrier);
    if (again_ns) {
      // Nothing of this object looks at `wanted_` any more: gRPC and the carrier are done with it.
      wanted_.asked.slow_nodes.clear();  // they may be slow no longer
      // The node is not lost with its connection for the rows' bytes, which gRPC brings now.
      if (has_lost_carrier) wanted_.carrier = {};
      wanted_.asked.payload = {};
      link_.StartLater(std::make_shared<RowsCall>(link_, clock_, std::move(wanted_)), *again_ns);
      return link_.Ended(*this);  // destroys this object
    }
    outcome = wanted_.retry.Outcome(Outcome(outcome.error()));
  }
  const bool is_withdrawn = !outcome.has_value() && wanted_.unwanted.stop_requested() &&
                            outcome.error().code() == ErrorCode::kCancelled;
  const bool is_refused = !outcome.has_value() && stage::IsTooBusy(outcome.error());
  const std::uint64_t received = outcome.has_value() ? bytes() : 0;
  // A call that was withdrawn or refused says nothing about the link.
  if (!is_withdrawn && !is_refused) {
    link_.Count(received, !outcome.has_value(), is_carried ? received : 0);
  }
  wanted_.done(outcome);
  link_.Ended(*this, received);  // destroys this object
}

}  // namespace forebay::peer
