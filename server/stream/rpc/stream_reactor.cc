// gRPC allows one read, one write and one Finish per call. One read: the next one starts when a
// request has been served. One write: PumpLocked sends what is ready if no write is under way; what
// becomes ready meanwhile is gathered in pending_, overflow_ and inline_, so a slow reader gets few
// large messages. One Finish: EndLocked, guarded by ended_. All state is under mutex_. The session
// calls Deliver under its sink_mutex_, and StreamSession::Close takes that mutex, so Close is never
// called under mutex_.
#include "server/stream/rpc/stream_reactor.h"

#include <algorithm>
#include <utility>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stream/rpc/wire_batch.h"

namespace forebay::stream {
namespace {

// The log has a line for the start and the end of each stream, so that a slow one can be found
// later.
void LogOpened(const StreamSpec& spec) {
  log::Info("stream '{}' of data set '{}' opened by '{}' (pid {}), rank {} of {}: order "
            "{:016x}, {} samples, batches of {}, {} credits",
            spec.stream_name, spec.dataset->name(), spec.client.name, spec.client.pid, spec.rank,
            spec.plan.ranks(), spec.order.Fingerprint(), spec.selection->size(),
            spec.plan.global_batch() / spec.plan.ranks(), spec.credits);
}

void LogEnded(const StreamSpec& spec, const SessionStats& stats) {
  log::Info("stream '{}' of data set '{}' of '{}' (pid {}), rank {} of {}, has ended: {} "
            "batches, {} samples, {} bytes; {} samples from SSD, {} waited for the GFS",
            spec.stream_name, spec.dataset->name(), spec.client.name, spec.client.pid, spec.rank,
            spec.plan.ranks(), stats.batches, stats.samples, stats.bytes, stats.ssd_samples,
            stats.waited_samples);
}

}  // namespace

StreamReactor::StreamReactor(DataService& service, ClientIdentity client)
    : service_(service), client_(std::move(client)) {}

// Reads nothing if the daemon shuts down and has ended the call already.
void StreamReactor::Begin() { ContinueReading(); }

void StreamReactor::ContinueReading() {
  const MutexLock lock(mutex_);
  // gRPC does not allow a read after Finish.
  if (!ended_) StartRead(&request_);
}

void StreamReactor::OnReadDone(bool ok) {
  if (!ok) {
    // The reader sends no more: it has closed its side of the call, or it is gone.
    bool has_finished = false;
    bool ends_well = false;
    {
      // After `finish` the reader has nothing more to say; the trailer may still be to come.
      const MutexLock lock(mutex_);
      has_finished = half_closed_ = finish_asked_;
      ends_well = has_finished && trailer_sent_;
    }
    // Otherwise OnWriteDone does it, after the trailer.
    if (ends_well) EndWell();
    if (!has_finished) End(Error(ErrorCode::kCancelled, "the reader ended the stream"));
    return;
  }
  if (request_.has_open()) {
    service_.HasSpoken(*this);
    Open(request_.open());
    return;
  }
  const Status served = Serve(request_);
  if (!served.has_value()) {
    End(served.error());
    return;
  }
  ContinueReading();
}

void StreamReactor::Open(const v1::OpenStream& open) {
  {
    const MutexLock lock(mutex_);
    // Two openings cannot be under way at once: nothing is read before OpenResolved has ended.
    if (session_) {
      EndLocked(ToGrpc(Error(ErrorCode::kInvalidArgument, "the stream is open already")));
      return;
    }
  }
  if (open.still_held_size() > static_cast<int>(limits::kCreditsMax) ||
      open.gone_readers_size() > limits::kGoneReadersMax) {
    End(Error(ErrorCode::kInvalidArgument, "too many batches of former calls, or gone readers"));
    return;
  }
  if (client_.is_remote && !open.inline_payload()) {
    End(Error(ErrorCode::kInvalidArgument,
              "a client of another node shares no memory with this daemon: it must open the stream "
              "with inline_payload"));
    return;
  }
  // Also where this call is refused.
  service_.parts_.registry.Forget(
      {open.gone_readers().data(), static_cast<std::size_t>(open.gone_readers_size())});
  stage::Dataset* dataset = service_.parts_.find_dataset(open.dataset());
  if (dataset == nullptr) {
    std::string names;
    for (const std::string& name : service_.parts_.dataset_names()) names += " " + name;
    End(Error(ErrorCode::kNotFound,
              "no data set '" + open.dataset() + "'; configured are:" + names));
    return;
  }
  service_.parts_.ensure_staging(*dataset);
  const StreamRequestSpec request = FromWire(open, client_);
  // A client of another node asks the next one, which may have the catalog.
  if (!dataset->catalog() && (client_.is_remote || !open.wait_for_catalog())) {
    End(Error(ErrorCode::kUnavailable,
              "the catalog of '" + open.dataset() + "' is still being built"));
    return;
  }
  // Cataloguing may take longer than the call lives; `self` keeps this object until the callback
  // has run. No read is started meanwhile, so request_ keeps the first request.
  dataset->WhenCatalogued([self = shared_from_this(), dataset, request](const Status& status) {
    if (status.has_value()) {
      self->OpenCatalogued(*dataset, request);
    } else {
      self->End(status.error());
    }
  });
}

void StreamReactor::OpenCatalogued(stage::Dataset& dataset, const StreamRequestSpec& request) {
  if (!TakesLong(request.selection)) return OpenResolved(ResolveStream(dataset, request));
  // As above, the task keeps this object, and no read is started.
  const Status begun = service_.Resolve([self = shared_from_this(), &dataset, request] {
    self->OpenResolved(ResolveStream(dataset, request));
  });
  if (!begun.has_value()) End(begun.error());
}

void StreamReactor::OpenResolved(Result<StreamSpec> spec) {
  if (!spec.has_value()) return End(spec.error());
  {
    // The reader may have gone long ago, and have opened the stream by another call.
    const MutexLock lock(mutex_);
    if (ended_) return;
  }
  // Not under mutex_: opening may take long, and OnCancel must not wait for it.
  const auto& still_held = request_.open().still_held();
  auto session = service_.parts_.registry.Open(
      std::move(*spec), this, {still_held.data(), static_cast<std::size_t>(still_held.size())});
  if (!session.has_value()) {
    const Error& refused = session.error();
    // A client of another node, for which this daemon has no room, tries the next one.
    const bool is_full = client_.is_remote && refused.code() == ErrorCode::kResourceExhausted;
    return End(is_full ? Error(ErrorCode::kUnavailable, refused.message()) : refused);
  }
  std::shared_ptr<void> while_open = service_.parts_.opened((*session)->spec());
  bool has_ended = false;
  {
    const MutexLock lock(mutex_);
    has_ended = ended_;
    if (!has_ended) {
      session_ = *session;
      while_open_ = std::move(while_open);
      // Under the lock: the call has not ended, so the service hears of its end later.
      service_.HasOpened(*this);
      SayOpenedLocked();
    }
  }
  if (has_ended) {
    // Another call of the reader may be closing the session just now, and calls Closed of this
    // object in the end. Close waits for that; OnDone, which finds no session, does not.
    (*session)->Close();
    return;
  }
  // The first request may already name batches, which saves a round trip.
  const Status served = Serve(request_);
  if (!served.has_value()) return End(served.error());
  ContinueReading();
}

void StreamReactor::SayOpenedLocked() {
  const StreamSpec& open = session_->spec();
  LogOpened(open);
  v1::Opened& opened = *pending_.mutable_opened();
  opened.set_catalog_fingerprint(open.catalog->fingerprint());
  opened.set_selected_count(open.selection->size());
  opened.set_steps_per_epoch(open.plan.steps());
  opened.set_dropped_per_epoch(open.plan.dropped_samples());
  opened.set_padded_per_epoch(open.plan.padded_samples());
  opened.set_batch_bytes_max(open.batch_bytes_max);
  for (const std::uint64_t id : session_->held_ids()) opened.add_still_held(id);
  for (std::uint32_t i = 0; i < open.catalog->fields().size(); ++i) {
    FillField(*open.catalog, FieldId(i), *opened.add_fields());
  }
  // An estimate; the counter only decides when a message is full, and that there is something to
  // send.
  pending_bytes_ += 1024;
  PumpLocked();
}

// Without shared memory, inline_ points into the slots of batches that the reader holds, and soon
// into that of a batch that is being delivered. A release frees the slot for the next batch.
Status StreamReactor::CheckReleaseLocked(std::span<const std::uint64_t> ids) const {
  if (!session_ || !session_->spec().inline_payload) return {};
  if (ids.size() > session_->spec().credits) {
    return Error(ErrorCode::kInvalidArgument,
                 "more batches were released than the stream has credits");
  }
  for (const std::uint64_t id : ids) {
    const bool is_sent = id <= last_delivered_id_ &&
                         std::none_of(inline_.begin(), inline_.end(), [&](const auto& payload) {
                           return payload.batch_id == id;
                         });
    if (!is_sent) {
      return Error(ErrorCode::kInvalidArgument,
                   "batch " + std::to_string(id) + " was released before its last inline chunk "
                   "was sent");
    }
  }
  return {};
}

Status StreamReactor::Serve(const v1::StreamRequest& request) {
  std::shared_ptr<StreamSession> session;
  const std::span<const std::uint64_t> released(request.release().data(),
                                                static_cast<std::size_t>(request.release_size()));
  {
    const MutexLock lock(mutex_);
    session = session_;
    FOREBAY_TRY(CheckReleaseLocked(released));
    // The trailer, which counts all batches, may have been sent.
    if (finish_asked_ && request.pulls_size() > 0) {
      return Error(ErrorCode::kInvalidArgument, "a pull after finish");
    }
  }
  if (!session) {
    return Error(ErrorCode::kInvalidArgument, "the first request of a stream must open it");
  }
  if (request.close()) {
    {
      // Nothing is sent any more from memory that is about to be free.
      const MutexLock lock(mutex_);
      closed_by_reader_ = true;
    }
    session->CloseDone();
    return Error(ErrorCode::kCancelled, "the reader has closed the stream");
  }
  // First, so that pulls of the same request can use the credits that this gives back.
  if (!released.empty()) FOREBAY_TRY(session->Release(released));
  for (const v1::Pull& pull : request.pulls()) {
    {
      const MutexLock lock(mutex_);
      // A failed batch gives its credit back at once, so credits do not bound the errors of a
      // reader that asks for wrong names and never reads. A proper reader counts a batch as asked
      // for until it has read the answer, so it asks for nothing while so many errors wait for it.
      if (static_cast<std::uint32_t>(pending_.errors_size()) >= session->spec().credits) {
        return Error(ErrorCode::kResourceExhausted,
                     "as many failed batches as the stream has credits wait to be read; read the "
                     "answers before asking for more batches");
      }
      // Before Pull: a batch may be delivered before Pull returns, and answered_ must not get
      // ahead.
      asked_ += pull.step_count();
    }
    FOREBAY_TRY(session->Pull({.first = FromWire(pull), .count = pull.step_count()}));
  }
  if (request.finish()) {
    const MutexLock lock(mutex_);
    finish_asked_ = true;
    PumpLocked();
  }
  return {};
}

void StreamReactor::Deliver(std::span<const AnsweredBatch> batches) {
  // Filled before the lock is taken: copying the ids and spans of a large batch takes a while.
  std::vector<v1::Batch> messages;
  for (const AnsweredBatch& answered : batches) {
    if (answered.is_taken()) FillBatch(answered.id, *answered.outcome, messages.emplace_back());
  }
  const MutexLock lock(mutex_);
  if (ended_) return;
  answered_ += batches.size();
  auto message = messages.begin();
  for (const AnsweredBatch& answered : batches) {
    if (!answered.is_taken()) {
      FillError(answered.job->name, answered.outcome.error(), *pending_.add_errors());
      pending_bytes_ += 64 + answered.outcome.error().message().size();
      continue;
    }
    last_delivered_id_ = answered.id;
    if (session_->spec().inline_payload && !answered.slot.empty()) {
      // The bytes stay where they are until the reader releases the batch; chunks are cut from
      // there.
      message->set_inline_bytes(answered.slot.size());
      inline_.push_back({.batch_id = answered.id, .bytes = answered.slot, .sent = 0});
    }
    // PumpLocked moves it to pending_ if the message has room.
    overflow_.push_back(std::move(*message++));
  }
  PumpLocked();
}

void StreamReactor::Closed() {
  const MutexLock lock(mutex_);
  EndLocked(ToGrpc(Error(ErrorCode::kCancelled, "another call of the reader has closed this one")));
}

// Starts a write of everything that is ready, unless one is under way. Its end, OnWriteDone, comes
// here again.
void StreamReactor::PumpLocked() {
  if (writing_ || ended_ || closed_by_reader_) return;
  // Batches share a message up to this size. Beyond it the message would near gRPC's own limit.
  while (!overflow_.empty() && pending_bytes_ < limits::kReplyBytesMax) {
    pending_bytes_ += overflow_.front().ByteSizeLong();
    *pending_.add_batches() = std::move(overflow_.front());
    overflow_.pop_front();
  }
  // Payload follows only after the messages of all batches, so the reader knows what a chunk
  // belongs to. One chunk a message: the chunks of a large batch do not hold up the errors and
  // batches that become ready meanwhile.
  if (pending_bytes_ == 0 && overflow_.empty() && !inline_.empty()) {
    InlinePayload& payload = inline_.front();
    const std::uint64_t length = std::min<std::uint64_t>(limits::kInlineChunkBytes,
                                                         payload.bytes.size() - payload.sent);
    v1::InlineChunk& chunk = *pending_.mutable_chunk();
    chunk.set_batch_id(payload.batch_id);
    chunk.set_offset(payload.sent);
    chunk.set_data(payload.bytes.data() + payload.sent, length);
    payload.sent += length;
    pending_bytes_ += length + 64;
    if (payload.sent == payload.bytes.size()) inline_.pop_front();
  }
  MaybeFinishLocked();
  if (pending_bytes_ == 0) return;
  writing_ = true;
  // gRPC may use sending_ until OnWriteDone; pending_ gathers the next message.
  sending_.Swap(&pending_);
  pending_.Clear();
  pending_bytes_ = 0;
  StartWrite(&sending_);
}

// Adds the trailer once everything that was asked for has been handed to the transport. A reader
// that has the trailer may open the stream's name again, with other parameters.
void StreamReactor::MaybeFinishLocked() {
  if (!finish_asked_ || trailer_queued_ || ended_) return;
  if (asked_ != answered_ || !overflow_.empty() || !inline_.empty()) return;
  trailer_queued_ = true;
  // Before the trailer is sent, for the reader may open the name again as soon as it has it.
  session_->Leave();
  const SessionStats stats = session_->stats();
  v1::Trailer& trailer = *pending_.mutable_trailer();
  trailer.set_batches(stats.batches);
  trailer.set_samples(stats.samples);
  trailer.set_padded(stats.padded);
  trailer.set_checksum(stats.digest);
  pending_bytes_ += 64;
}

void StreamReactor::OnWriteDone(bool ok) {
  {
    const MutexLock lock(mutex_);
    writing_ = false;
    // OnDone closes the session; gRPC calls it in any case.
    if (!ok) return EndLocked(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the reader is gone"));
    // Batches that the reader still holds stay valid: it ends the call when it needs none of them.
    if (sending_.has_trailer()) trailer_sent_ = true;
    if (!trailer_sent_ || !half_closed_) return PumpLocked();
  }
  EndWell();
}

// The session is closed before the call ends, so a reader that sees the end of its call finds the
// memory of the stream free.
void StreamReactor::EndWell() {
  std::shared_ptr<StreamSession> session;
  {
    const MutexLock lock(mutex_);
    session = session_;
  }
  if (session) session->CloseDone();
  const MutexLock lock(mutex_);
  EndLocked(grpc::Status::OK);
}

void StreamReactor::OnCancel() { End(Error(ErrorCode::kCancelled, "the reader went away")); }

void StreamReactor::End(const Error& error) {
  std::shared_ptr<StreamSession> session;
  {
    const MutexLock lock(mutex_);
    session = session_;
    // The call ends first, so that the session's last batches are not delivered to it.
    EndLocked(ToGrpc(error));
  }
  if (session) session->Close();
}

void StreamReactor::EndLocked(const grpc::Status& status) {
  if (ended_) return;
  ended_ = true;
  // A reader that stops early is no event worth a warning.
  if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) {
    log::Warn("stream of '{}' (pid {}) ended: {}", client_.name, client_.pid,
              status.error_message());
  }
  Finish(status);
}

void StreamReactor::OnDone() {
  std::shared_ptr<StreamSession> session;
  {
    const MutexLock lock(mutex_);
    // Taken out, to be closed without mutex_: Close waits for a delivery under way, which needs it.
    session = std::move(session_);
  }
  // Nothing reaches this object through the session after Close has returned.
  if (session) {
    session->Close();
    LogEnded(session->spec(), session->stats());
  }
  session.reset();
  // The service's reference was the last one, unless a callback still has its own.
  service_.Left(shared_from_this());
}

}  // namespace forebay::stream
