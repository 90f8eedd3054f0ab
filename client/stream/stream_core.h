// StreamCore: the state machine of one stream, shared by the BatchStream and by every batch
// that is still held. See client/README.md for the picture.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "client/connection/daemon_connection.h"
#include "client/stream/batch_state.h"
#include "client/stream/inline_assembly.h"
#include "client/stream/pull_window.h"
#include "client/stream/stream_call.h"
#include "client/stream/stream_ledger.h"
#include "client/stream/stream_schema.h"
#include "client/transform_pool.h"
#include "forebay/batch_stream.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_steps.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {

// What a stream is, fixed when it is opened.
struct StreamSettings {
  // The first request; its catalog_fingerprint is the expected one. The core names the reader.
  v1::OpenStream open;
  OrderSpec order;
  StepPlan plan;
  PullWindow::Range range;
  std::uint32_t prefetch_depth = 0;
};

// Two sides: the caller's threads, and gRPC's, which StreamCall brings (OnReply and so on), under
// one mutex. gRPC's threads never own the core, so its destructor, which waits for the call to end,
// and the channel's, which joins those threads, always run on a caller's thread.
//
// A caller that has work to do never sends: it calls the sender, a thread of the core. One that is
// about to wait sends by itself, which saves it a wake-up. Nobody sends under the mutex.
class StreamCore final : public std::enable_shared_from_this<StreamCore> {
 public:
  static std::shared_ptr<StreamCore> Create(StreamSettings settings);
  ~StreamCore();

  // Batches that arrive from now on pass through `pool`, which must outlive Close() or the next
  // call of this; null: through none.
  void UseTransforms(TransformPool* pool);

  // Opens the stream on a connection and asks again for what had not been handed out. The
  // former call, if any, has ended. Blocks until the daemon has answered.
  Status Attach(std::shared_ptr<const DaemonConnection> connection, Deadline deadline);

  enum class Waited {
    kReady,      // `state` is set
    kEndOfOrder,
    kCallEnded,  // reconnect, then wait again
    kRefused,    // the daemon cannot bring it now, says `error`; the next wait asks again
    kLate,       // the deadline is over, says `error`; the next wait goes on with this one
  };
  struct Outcome {
    Waited waited = Waited::kReady;
    StatePtr state;
    std::optional<Error> error;
    std::uint64_t wait_ns = 0;
  };
  // The next batch of the order. Errors are those of BatchStream::Next that are final, or the
  // caller's to mend.
  Result<Outcome> WaitNext(Deadline deadline);
  // A named batch, likewise. The name has been checked.
  Result<Outcome> WaitNamed(const BatchName& name, Deadline deadline);
  // Ends the call, as if it had broken: the next wait says kCallEnded. Waits for its end.
  void EndCall();
  // Between two tries: until then, or until the stream is cancelled.
  void Pause(Deadline until);

  // Sends finish and waits for the trailer, and for the end of the call where the caller holds no
  // batch. See BatchStream::Finish; kUnavailable where the call broke before its trailer.
  Status Finish(Deadline deadline);
  // Ends the stream with an error of the caller's side.
  void Abandon(Error error);
  // See BatchStream::Cancel. Wakes every wait; does nothing to a stream that has failed.
  void Cancel();
  bool is_cancelled() const;
  // Whether the stream was opened at another node last.
  bool is_away() const;
  // The stream's owner is gone: nothing is asked for any more. Held batches live on.
  void Close();

  // Why the call ended, for messages; meaningful after kCallEnded.
  Error call_error() const;
  std::shared_ptr<const StreamSchema> schema() const;
  // Called by TransformPool's workers.
  void OnTransformed(const Batch::State* state, Status status);

  // Called by StreamCall on gRPC's threads, one call at a time for replies; they do not wait.
  // A message, whose content is taken. False ends the call.
  bool OnReply(v1::StreamReply& reply);
  // No reply will follow, and no hold is taken from here on. Returns before OnEnded is called.
  void OnRepliesEnded();
  // The last write is out: request() may be filled again.
  void OnWritten();
  // The call is over. Nothing touches the call or this object after it returns.
  void OnEnded(const grpc::Status& status);

 private:
  struct Arrival {
    std::unique_ptr<Batch::State> state;
    std::uint64_t digest = 0;
  };
  // What must be destroyed after the mutex is released: the last owner of a batch comes back
  // through TakeBack, which locks it.
  using Discarded = std::vector<StatePtr>;
  struct GiveBack;
  // A batch that is here and that a daemon keeps, and the call on which it came: the ids of a
  // daemon that has been restarted may be the same. `memory` is the generation of the daemon in
  // whose shared memory it lies; 0: it came inside messages.
  struct HeldId {
    std::uint64_t call_number = 0;
    std::uint64_t wire_id = 0;
    std::uint64_t memory = 0;
  };

  explicit StreamCore(StreamSettings settings);

  void NameHeld(v1::OpenStream& open) FOREBAY_REQUIRES(mutex_);
  void PutBackGoneReaders() FOREBAY_REQUIRES(mutex_);
  void KeepHeld(const v1::Opened& opened) FOREBAY_REQUIRES(mutex_);
  // Asks again for what was ready, but lies in memory that the daemon could not keep.
  void AskForLost(const std::vector<HeldId>& lost) FOREBAY_REQUIRES(mutex_);
  void CloseCall() FOREBAY_REQUIRES(mutex_);
  Status CheckOpened(const v1::Opened& opened);
  Status TakeReply(v1::StreamReply& reply);
  Status TakeBatch(v1::Batch& message);
  Status TakeChunk(const v1::InlineChunk& chunk);
  Status Decode(const v1::Batch& message, std::unique_ptr<Batch::State> state);
  Status TakeBatchError(const v1::BatchError& error) FOREBAY_REQUIRES(mutex_);
  Status TakeTrailer(const v1::Trailer& trailer) FOREBAY_REQUIRES(mutex_);
  std::unique_ptr<Batch::State> NewState();

  Status Place(Arrival arrival, Discarded& discarded) FOREBAY_REQUIRES(mutex_);
  Status CheckPlace(const Batch::State& state) const;
  void Recycle(std::unique_ptr<Batch::State> state) FOREBAY_REQUIRES(mutex_);
  void TakeBack(std::unique_ptr<Batch::State> state) FOREBAY_EXCLUDES(mutex_);
  std::size_t CreditsUsed() const FOREBAY_REQUIRES(mutex_);
  void FillQueue() FOREBAY_REQUIRES(mutex_);
  // Writes a request, or closes the call, where one or the other is due; unlocks the mutex
  // meanwhile. False where neither is.
  bool Send() FOREBAY_REQUIRES(mutex_);
  // Whether the sender is to be notified, once the mutex is free.
  bool CallsSender() FOREBAY_REQUIRES(mutex_);
  bool MaySend() const FOREBAY_REQUIRES(mutex_) {
    return opened_ && writable_ && !write_out_ && !writes_done_;
  }
  // Waits until something changes. False: `deadline` has passed. Whatever is to be sent is not held
  // back any longer than until `held_until`.
  bool AwaitChange(Deadline deadline, Deadline held_until) FOREBAY_REQUIRES(mutex_);
  // Whether anything is to be sent, due or not.
  bool HoldsBack() const FOREBAY_REQUIRES(mutex_);
  bool SendIsDue() const FOREBAY_REQUIRES(mutex_);
  // After the trailer the call lives on only for the batches that are still held.
  bool CloseIsDue() const FOREBAY_REQUIRES(mutex_) {
    return trailer_.has_value() && live_states_ == 0;
  }
  void BuildRequest(v1::StreamRequest& request) FOREBAY_REQUIRES(mutex_);
  void AddPulls(v1::StreamRequest& request) FOREBAY_REQUIRES(mutex_);
  void AskAgain(Discarded& discarded) FOREBAY_REQUIRES(mutex_);
  // Null where the call ended or the deadline is over. May unlock the mutex meanwhile.
  Result<PulledBatch*> AskForNamed(const BatchName& name, Deadline deadline)
      FOREBAY_REQUIRES(mutex_);
  void Fail(Error error) FOREBAY_REQUIRES(mutex_);
  // Whether calls end with the error Stop(): the stream has failed, or was cancelled. To Next and
  // Finish a Cancel means nothing once the whole order has been handed out. Where a stream was
  // cancelled and failed later, what followed from the cancelling is no news.
  bool NextStops() const FOREBAY_REQUIRES(mutex_) {
    return failure_.has_value() || (cancelled_ && !all_handed_out_);
  }
  bool PullStops() const FOREBAY_REQUIRES(mutex_) { return failure_.has_value() || cancelled_; }
  Error Stop() const FOREBAY_REQUIRES(mutex_);
  void RunSender() FOREBAY_EXCLUDES(mutex_);

  const StreamSettings settings_;
  const std::uint32_t credits_;

  // While it is held, batches may be passed to the transforms, which lock their own mutex.
  mutable Mutex mutex_;
  CondVar changed_;
  PullWindow window_ FOREBAY_GUARDED_BY(mutex_);
  TransformPool* transforms_ FOREBAY_GUARDED_BY(mutex_) = nullptr;
  // Batches in the window or with the caller.
  std::size_t live_states_ FOREBAY_GUARDED_BY(mutex_) = 0;
  // The caller of Next has waited for its batch so long that nothing is held back any more.
  bool has_waited_ FOREBAY_GUARDED_BY(mutex_) = false;
  // While a named batch waits for a credit.
  bool filling_paused_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool closed_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool finishing_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ FOREBAY_GUARDED_BY(mutex_);  // final
  // Set before failure_ was, if that is set.
  bool cancelled_ FOREBAY_GUARDED_BY(mutex_) = false;
  // Every batch of Next's order was handed out.
  bool all_handed_out_ FOREBAY_GUARDED_BY(mutex_) = false;

  // Of the current call.
  std::unique_ptr<StreamCall> call_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t call_number_ FOREBAY_GUARDED_BY(mutex_) = 0;
  bool opened_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool writable_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool write_out_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool finish_sent_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool closing_ FOREBAY_GUARDED_BY(mutex_) = false;  // the daemon is to end the call
  bool close_sent_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool writes_done_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool ended_ FOREBAY_GUARDED_BY(mutex_) = true;
  bool is_away_ FOREBAY_GUARDED_BY(mutex_) = false;  // the last one opened is at another node
  bool daemon_ended_ FOREBAY_GUARDED_BY(mutex_) = false;  // the daemon has ended it, not a failure
  std::optional<Error> call_error_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<v1::Trailer> trailer_ FOREBAY_GUARDED_BY(mutex_);
  StreamLedger ledger_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> releases_ FOREBAY_GUARDED_BY(mutex_);  // to send
  // Batches that the daemon is to keep until they are released; of former calls, too.
  std::vector<HeldId> held_ FOREBAY_GUARDED_BY(mutex_);
  // AskForLost puts batches here on a thread of gRPC, which must not destroy them; Attach does.
  Discarded lost_states_ FOREBAY_GUARDED_BY(mutex_);
  // Generation of the daemon that has been asked for batches in its shared memory, and may have
  // sent some that did not arrive; 0: there is none. While the stream reads from another node, it
  // is the daemon of this node.
  std::uint64_t keeper_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t daemon_generation_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of the current call
  std::uint64_t memory_ FOREBAY_GUARDED_BY(mutex_) = 0;  // likewise; 0: without shared memory
  std::vector<std::unique_ptr<Batch::State>> pool_ FOREBAY_GUARDED_BY(mutex_);
  std::shared_ptr<const StreamSchema> schema_ FOREBAY_GUARDED_BY(mutex_);

  // Touched only while replies are read, which is one at a time, and by Attach, before the call
  // starts. `reply_schema_` is the schema_ of this call, null until the daemon has opened it.
  InlineAssembly assembly_;
  const DaemonConnection* reply_connection_ = nullptr;
  std::shared_ptr<const StreamSchema> reply_schema_;
  std::vector<Arrival> arrivals_;

  CondVar sender_wakes_;
  bool sender_called_ FOREBAY_GUARDED_BY(mutex_) = false;  // and it has not looked since
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::thread sender_;  // last: everything above is there when it starts
};

}  // namespace forebay::internal
