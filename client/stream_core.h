// StreamCore: the state machine of one stream, shared by the BatchStream and by every batch
// that is still held. See client/README.md for the picture.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "client/batch_state.h"
#include "client/daemon_connection.h"
#include "client/inline_assembly.h"
#include "client/pull_window.h"
#include "client/stream_call.h"
#include "client/stream_ledger.h"
#include "client/stream_schema.h"
#include "client/transform_pool.h"
#include "forebay/batch_stream.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_steps.h"
#include "proto/contract/result.h"

namespace forebay::internal {

// What a stream is, fixed when it is opened.
struct StreamSettings {
  v1::OpenStream open;  // the first request; its catalog_fingerprint is the expected one
  OrderSpec order;
  StepPlan plan;
  PullWindow::Range range;
  std::uint32_t prefetch_depth = 0;
};

// Two sides: the caller's threads (public methods) and gRPC's (the listener's), under one
// mutex. gRPC's threads never own the core, so its destructor, which waits for the call to
// end, and the channel's, which joins those threads, always run on a caller's thread.
//
// A caller that has work to do never sends: it calls the sender, a thread of the core. One that is
// about to wait sends by itself, which saves it a wake-up. Nobody sends under the mutex.
class StreamCore final : public std::enable_shared_from_this<StreamCore>,
                         public StreamCallListener {
 public:
  static std::shared_ptr<StreamCore> Create(StreamSettings settings);
  ~StreamCore() override;

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
  // The stream's owner is gone: nothing is asked for any more. Held batches live on.
  void Close();

  // Why the call ended, for messages; meaningful after kCallEnded.
  Error call_error() const;
  std::shared_ptr<const StreamSchema> schema() const;
  // Called by TransformPool's workers.
  void OnTransformed(const Batch::State* state, Status status);

 private:
  struct Arrival {
    std::unique_ptr<Batch::State> state;
    std::uint64_t digest = 0;
  };
  // What must be destroyed after the mutex is released: the last owner of a batch comes back
  // through TakeBack, which locks it.
  using Discarded = std::vector<StatePtr>;
  struct GiveBack;

  explicit StreamCore(StreamSettings settings);

  // StreamCallListener, on gRPC's threads.
  bool OnReply(v1::StreamReply& reply) override;
  void OnRepliesEnded() override;
  void OnWritten() override;
  void OnEnded(const grpc::Status& status) override;

  Status CheckOpened(const v1::Opened& opened);
  Status TakeReply(v1::StreamReply& reply);
  Status TakeBatch(v1::Batch& message);
  Status TakeChunk(const v1::InlineChunk& chunk);
  Status Decode(const v1::Batch& message, std::unique_ptr<Batch::State> state);
  Status TakeBatchError(const v1::BatchError& error);
  Status TakeTrailer(const v1::Trailer& trailer);
  std::unique_ptr<Batch::State> NewState();

  // All below: mutex_ is held.
  Status Place(Arrival arrival, Discarded& discarded);
  Status CheckPlace(const Batch::State& state) const;
  void Recycle(std::unique_ptr<Batch::State> state);
  void TakeBack(std::unique_ptr<Batch::State> state);  // locks
  std::size_t CreditsUsed() const;
  void FillQueue();
  // Writes a request, or closes the call, where one or the other is due; unlocks meanwhile. False
  // where neither is.
  bool Send(std::unique_lock<std::mutex>& lock);
  // Whether the sender is to be notified, once the mutex is free.
  bool CallsSender();
  bool MaySend() const { return opened_ && writable_ && !write_out_ && !writes_done_; }
  bool SendIsDue() const;
  // After the trailer the call lives on only for the batches that are still held.
  bool CloseIsDue() const { return trailer_.has_value() && live_states_ == 0; }
  void BuildRequest(v1::StreamRequest& request);
  void AddPulls(v1::StreamRequest& request);
  void AskAgain(Discarded& discarded);
  // Null where the call ended or the deadline is over.
  Result<PulledBatch*> AskForNamed(std::unique_lock<std::mutex>& lock, const BatchName& name,
                                   Deadline deadline);
  void Fail(Error error);
  // Whether calls end with the error Stop(): the stream has failed, or was cancelled. To Next and
  // Finish a Cancel means nothing once the whole order has been handed out. Where a stream was
  // cancelled and failed later, what followed from the cancelling is no news.
  bool NextStops() const { return failure_.has_value() || (cancelled_ && !all_handed_out_); }
  bool PullStops() const { return failure_.has_value() || cancelled_; }
  Error Stop() const;
  void RunSender();  // locks

  const StreamSettings settings_;
  const std::uint32_t credits_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PullWindow window_;
  TransformPool* transforms_ = nullptr;
  std::size_t live_states_ = 0;          // batches in the window or with the caller
  bool filling_paused_ = false;          // while a named batch waits for a credit
  bool closed_ = false;
  bool finishing_ = false;
  std::optional<Error> failure_;         // final
  bool cancelled_ = false;               // before failure_ was set, if it is
  bool all_handed_out_ = false;          // every batch of Next's order

  // Of the current call.
  std::unique_ptr<StreamCall> call_;
  std::uint64_t call_number_ = 0;
  bool opened_ = false;
  bool writable_ = false;
  bool write_out_ = false;
  bool finish_sent_ = false;
  bool writes_done_ = false;
  bool ended_ = true;
  std::optional<Error> call_error_;
  std::optional<v1::Trailer> trailer_;
  StreamLedger ledger_;
  std::vector<std::uint64_t> releases_;  // to send
  std::vector<std::unique_ptr<Batch::State>> pool_;
  std::shared_ptr<const StreamSchema> schema_;

  // Touched only while replies are read, which is one at a time.
  InlineAssembly assembly_;
  std::vector<Arrival> arrivals_;

  std::condition_variable sender_wakes_;
  bool sender_called_ = false;  // and it has not looked since
  bool stopping_ = false;
  std::thread sender_;          // last: everything above is there when it starts
};

}  // namespace forebay::internal
