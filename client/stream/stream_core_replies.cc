// gRPC's side of StreamCore: what arrives, and the end of the call. A reply is decoded and checked
// without the mutex, because that is most of the work and replies come one at a time; then its
// batches are placed in the window under the mutex. Nothing that the daemon sends is trusted: the
// first message that does not fit what was asked for fails the stream with kDataLoss.
#include <algorithm>
#include <string>
#include <utility>

#include "client/connection/rpc_status.h"
#include "client/stream/batch_decoder.h"
#include "client/stream/stream_core.h"
#include "proto/contract/batch_digest.h"
#include "proto/contract/check.h"

namespace forebay::internal {
namespace {

using Phase = PulledBatch::Phase;

Error Disagreement(const std::string& what, std::uint64_t here, std::uint64_t there) {
  return Error(ErrorCode::kFailedPrecondition,
               "client and daemon disagree on " + what + ": " + std::to_string(here) + " here, " +
                   std::to_string(there) + " at the daemon");
}

}  // namespace

// The deleter of every shared state: the batch's memory goes back to the daemon.
struct StreamCore::GiveBack {
  std::shared_ptr<StreamCore> core;
  void operator()(Batch::State* state) const {
    core->TakeBack(std::unique_ptr<Batch::State>(state));
  }
};

bool StreamCore::OnReply(v1::StreamReply& reply) {
  Status status = TakeReply(reply);
  if (status) return true;
  {
    MutexLock lock(mutex_);
    // Waiting callers get the error from their own loops; this thread, gRPC's, has nobody to tell.
    // The false that follows makes StreamCall cancel the call.
    Fail(std::move(status.error()));
  }
  changed_.NotifyAll();
  return false;
}

Status StreamCore::TakeReply(v1::StreamReply& reply) {
  if (reply.has_opened()) FOREBAY_TRY(CheckOpened(reply.opened()));
  if (reply_schema_ == nullptr) {
    return Error(ErrorCode::kDataLoss, "the daemon's first reply opens no stream");
  }
  for (v1::Batch& message : *reply.mutable_batches()) FOREBAY_TRY(TakeBatch(message));
  if (reply.has_chunk()) FOREBAY_TRY(TakeChunk(reply.chunk()));
  {
    // Declared before the lock, so destroyed after it: a dropped batch takes the mutex to give its
    // memory back.
    Discarded discarded;
    MutexLock lock(mutex_);
    for (Arrival& arrival : arrivals_) FOREBAY_TRY(Place(std::move(arrival), discarded));
    arrivals_.clear();
    for (const v1::BatchError& error : reply.errors()) FOREBAY_TRY(TakeBatchError(error));
    // Last, because it is about the batches of this message, too.
    if (reply.has_trailer()) FOREBAY_TRY(TakeTrailer(reply.trailer()));
    // Who waits for a batch need not wait for the next request to be on its way.
    changed_.NotifyAll();
    Send();
  }
  return {};
}

// Daemon and client must mean the same data set and the same order. If they do not, the samples
// would be others than the caller's checkpoint, audit or other ranks assume.
Status StreamCore::CheckOpened(const v1::Opened& opened) {
  if (reply_schema_ != nullptr) {
    return Error(ErrorCode::kDataLoss, "the daemon opened the stream twice");
  }
  const std::uint64_t expected = settings_.open.catalog_fingerprint();
  if (opened.catalog_fingerprint() != expected) {
    return Disagreement("the catalog's fingerprint (the data set has changed)", expected,
                        opened.catalog_fingerprint());
  }
  if (opened.selected_count() != settings_.order.sample_count) {
    return Disagreement("the number of selected samples", settings_.order.sample_count,
                        opened.selected_count());
  }
  if (opened.steps_per_epoch() != settings_.plan.steps()) {
    return Disagreement("the steps of an epoch", settings_.plan.steps(),
                        opened.steps_per_epoch());
  }
  FOREBAY_ASSIGN(StreamSchema schema, ParseSchema(opened.fields()));
  reply_schema_ = std::make_shared<const StreamSchema>(std::move(schema));
  MutexLock lock(mutex_);
  KeepHeld(opened);
  schema_ = reply_schema_;
  is_away_ = reply_connection_->is_other_node();
  opened_ = true;
  return {};
}

// States come from a pool, with the capacity of the batches that were in them before: a warm stream
// allocates nothing here.
std::unique_ptr<Batch::State> StreamCore::NewState() {
  std::unique_ptr<Batch::State> state;
  {
    MutexLock lock(mutex_);
    if (!pool_.empty()) {
      state = std::move(pool_.back());
      pool_.pop_back();
    }
  }
  if (state == nullptr) state = std::make_unique<Batch::State>();
  state->Clear();
  return state;
}

Status StreamCore::TakeBatch(v1::Batch& message) {
  std::unique_ptr<Batch::State> state = NewState();
  // Decoding waits for the last chunk: spans are checked against bytes that are there.
  if (message.inline_bytes() != 0) return assembly_.Begin(message, std::move(state));
  return Decode(message, std::move(state));
}

Status StreamCore::TakeChunk(const v1::InlineChunk& chunk) {
  FOREBAY_ASSIGN(std::optional<AssembledBatch> complete, assembly_.Add(chunk));
  if (!complete) return {};
  return Decode(complete->message, std::move(complete->state));
}

Status StreamCore::Decode(const v1::Batch& message, std::unique_ptr<Batch::State> state) {
  const std::shared_ptr<const RegionMap>& regions = reply_connection_->regions();
  const DecodeSources sources = {.schema = *reply_schema_,
                                 .regions = *regions,
                                 .populator = &reply_connection_->populator()};
  FOREBAY_TRY(DecodeBatch(message, sources, *state));
  // Pooled states mostly have these already; not copying saves the shared counters' traffic.
  if (state->schema != reply_schema_) state->schema = reply_schema_;
  if (state->regions != regions) state->regions = regions;
  state->is_of_other_node = reply_connection_->is_other_node();
  // The daemon computes the same digest as it sends. The trailer has their sum, so that a batch
  // that was changed, lost or sent twice shows at the end, whatever order they came in.
  const BatchIdentity identity = {.epoch = state->epoch,
                                  .step = state->step,
                                  .micro_size = state->micro_size,
                                  .micro_index = state->micro_index,
                                  .rank = settings_.open.rank()};
  arrivals_.push_back(
      {std::move(state), BatchDigest(identity, std::as_bytes(std::span(message.sample_ids())))});
  return {};
}

// The ids in a batch are the audit's business; its place in the order is checked here, by computing
// it again.
Status StreamCore::CheckPlace(const Batch::State& state) const {
  const auto slice =
      state.micro_size == 0
          ? settings_.plan.RankSlice(state.step, settings_.open.rank())
          : settings_.plan.MicroBatchSlice({.step = state.step,
                                            .index = state.micro_index,
                                            .samples = state.micro_size});
  if (!slice) return slice.error();
  // Positions behind the last sample are those that the tail policy fills with samples from the
  // beginning.
  const std::uint64_t end = slice->first + slice->count;
  const std::uint64_t own_end = std::min(end, settings_.order.sample_count);
  const std::uint64_t padded = end - std::max(slice->first, own_end);
  if (state.sample_count != slice->count || state.padded_count != padded ||
      (slice->count != 0 && state.first_position != slice->first)) {
    return Error(ErrorCode::kDataLoss,
                 "the batch of epoch " + std::to_string(state.epoch.value()) + ", step " +
                     std::to_string(state.step.value()) +
                     " is not the part of the order that was asked for");
  }
  return {};
}

Status StreamCore::Place(Arrival arrival, Discarded& discarded) {
  Batch::State& state = *arrival.state;
  PulledBatch* pulled = window_.FindAsked({.epoch = state.epoch,
                                           .step = state.step,
                                           .micro_size = state.micro_size,
                                           .micro_index = state.micro_index});
  // After Close nobody remembers what was asked for, and nobody wants it.
  if (closed_) return {};
  if (pulled == nullptr || trailer_) {
    return Error(ErrorCode::kDataLoss,
                 "the daemon sent a batch that was not asked for: epoch " +
                     std::to_string(state.epoch.value()) + ", step " +
                     std::to_string(state.step.value()));
  }
  // Checked before it is counted, and counted before it may be dropped: the daemon counts what it
  // sends.
  FOREBAY_TRY(CheckPlace(state));
  ledger_.batches += 1;
  ledger_.samples += state.sample_count;
  ledger_.padded += state.padded_count;
  ledger_.checksum += arrival.digest;
  state.call_number = call_number_;
  if (state.wire_id != 0) {
    held_.push_back(
        {.call_number = call_number_, .wire_id = state.wire_id, .memory = memory_});
  }
  // The token of a batch continues behind it, so it names the next step, of which the end of an
  // epoch has none: the reader of a token moves on to the next epoch.
  state.token = {.catalog_fingerprint = settings_.open.catalog_fingerprint(),
                 .order = settings_.order,
                 .global_batch = settings_.open.global_batch(),
                 .next_epoch = state.epoch,
                 .next_step = StepId(state.step.value() + 1)};
  // Null while the destructor runs, which waits for this thread: a batch that owned the core would
  // be destroyed on a thread of gRPC.
  std::shared_ptr<StreamCore> self = weak_from_this().lock();
  if (finishing_ || pulled->abandoned || self == nullptr) {
    discarded.push_back(window_.Remove(pulled).state);
    Recycle(std::move(arrival.state));
    return {};
  }
  // From here on the batch belongs to whoever holds copies, and comes back through the deleter.
  ++live_states_;
  pulled->state = StatePtr(arrival.state.release(), GiveBack{std::move(self)});
  pulled->phase = transforms_ == nullptr ? Phase::kReady : Phase::kTransforming;
  if (transforms_ != nullptr) transforms_->Submit(pulled->state, state);
  return {};
}

Status StreamCore::TakeBatchError(const v1::BatchError& error) {
  if (closed_) return {};
  PulledBatch* pulled = window_.FindAsked({.epoch = EpochId(error.epoch()),
                                           .step = StepId(error.step()),
                                           .micro_size = error.micro_size(),
                                           .micro_index = error.micro_index()});
  if (pulled == nullptr) {
    return Error(ErrorCode::kDataLoss,
                 "the daemon refused a batch that was not asked for: epoch " +
                     std::to_string(error.epoch()) + ", step " + std::to_string(error.step()));
  }
  if (finishing_ || pulled->abandoned) {
    window_.Remove(pulled);
    return {};
  }
  // The wait for this batch decides whether the error ends the stream or is worth another try.
  pulled->phase = Phase::kFailed;
  pulled->error = FromDaemon(Error(ErrorCodeFromNumber(error.code()), error.message()));
  return {};
}

Status StreamCore::TakeTrailer(const v1::Trailer& trailer) {
  if (trailer_ || !finish_sent_) {
    return Error(ErrorCode::kDataLoss, "the daemon sent a trailer that was not asked for");
  }
  trailer_ = trailer;
  return {};
}

// From here on the call may end at any time, so no hold is taken any more: Send asks `writable_`.
void StreamCore::OnRepliesEnded() {
  MutexLock lock(mutex_);
  writable_ = false;
}

void StreamCore::OnWritten() {
  MutexLock lock(mutex_);
  write_out_ = false;
  Send();
}

void StreamCore::OnEnded(const grpc::Status& status) {
  MutexLock lock(mutex_);
  Error error = status.ok() ? Error(ErrorCode::kUnavailable, "the daemon ended the stream")
                            : ErrorFromRpc(status);
  // The stream was opened before, so it can be. Another node that refuses it, or the daemon of this
  // node when the stream comes back, does not serve it now, whatever the reason; others may. A
  // daemon that was started again may have promised the memory to readers that came earlier.
  const bool may_pass = is_away_ || call_->connection().is_other_node() ||
                        error.code() == ErrorCode::kResourceExhausted;
  if (!opened_ && schema_ != nullptr && may_pass && !error.retryable()) {
    error = Error(ErrorCode::kUnavailable,
                  "the daemon at " + call_->connection().address() +
                      " does not serve this stream: " + error.ToString());
  }
  // After the trailer the stream has everything, however the call ends.
  if (!error.retryable() && !trailer_) Fail(error);
  call_error_ = std::move(error);
  daemon_ended_ = status.ok() || status.error_code() == grpc::StatusCode::CANCELLED;
  ended_ = true;
  // Under the mutex: once it is free, the core may be destroyed.
  changed_.NotifyAll();
}

}  // namespace forebay::internal
