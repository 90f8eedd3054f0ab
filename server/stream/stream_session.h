// StreamSession: one call of one stream of one rank. Keeps no delivery state, only what is owed:
// which pulls are under way, and which batches the reader holds (credits). The latter may come from
// a former call (StreamReader). Transport-neutral: gRPC, or a test, stands behind BatchSink.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/process_watch.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/batch_job.h"
#include "server/stream/batch_scheduler.h"
#include "server/stream/future_use.h"
#include "server/stream/held_batches.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// Receives a session's output, from any thread, until the session is closed.
class BatchSink {
 public:
  virtual ~BatchSink() = default;
  // One batch or more that ended together, each taken or with an error. `batches` lasts as long as
  // the call; the memory of a batch stays in place until its id is given to Release. Each id is
  // larger than the one before.
  virtual void Deliver(std::span<const AnsweredBatch> batches) = 0;
  // The session was closed by somebody else than the owner of the sink: nobody waits for this call
  // any more. Called once at most, as the last call.
  virtual void Closed() = 0;
};

struct SessionStats : BatchCounts {
  std::uint64_t batches = 0, samples = 0, padded = 0, bytes = 0;
  std::uint64_t waited_samples = 0;  // of batches that waited for the GFS
  std::uint64_t digest = 0;  // sum of BatchDigest over delivered batches
  std::uint64_t failed = 0;  // batches that were answered with an error
  std::uint32_t held = 0;    // batches with the reader
};

// A pull as it came: `count` steps from `first` on.
struct PullRange {
  BatchName first;
  std::uint32_t count = 1;
};

class StreamSession;

// A reader, and what it has: batches, and the slot memory that is promised to it. It is part of a
// session while its call is open, and afterwards of the registry, if the reader was cut off.
struct StreamReader {
  std::shared_ptr<const StreamSpec> spec;
  std::shared_ptr<StreamSlots> slots;  // of BatchScheduler::Admit
  HeldBatches held;
  // Null: unknown, so the memory cannot be kept until the process has ended.
  std::shared_ptr<const io::ProcessWatch> process;
};

// What the registry wants to know of a session. Called without any lock of the session.
struct SessionHooks {
  // The reader asks for no more. At most once.
  std::function<void(const StreamSession&)> left;
  // Whether batches that readers have when their calls end are to stay held in any case.
  std::function<bool()> keeps_all;
  // The session is closed; `has_left`: `left` was called before. Once.
  std::function<void(const StreamSession&, StreamReader, bool has_left)> closed;
};

// What a session works with; the scheduler is borrowed.
struct SessionParts {
  BatchScheduler& scheduler;
  std::shared_ptr<StreamFuture> future;  // is told how far the reader has got
  SessionHooks hooks;
};

// Thread-safe. Made by StreamRegistry::Open; shared by the transport and the tasks under way.
class StreamSession final : public BatchOwner,
                            public std::enable_shared_from_this<StreamSession> {
 public:
  // `sink` is borrowed until Close().
  StreamSession(StreamReader reader, BatchSink* sink, SessionParts parts);
  ~StreamSession() override;

  const StreamSpec& spec() const override { return *spec_; }
  SessionStats stats() const;
  // Returns the ids of the batches that the reader has.
  std::vector<std::uint64_t> held_ids() const;

  // Starts assembling. kResourceExhausted where the reader has too few credits left: a protocol
  // error, the stream must end. A name that does not exist fails alone, through the sink.
  Status Pull(const PullRange& range);
  // Frees held batches. kInvalidArgument for an id that is not held: a protocol error.
  Status Release(std::span<const std::uint64_t> ids);
  // The reader asks for no more: others may open the stream's name with other words from now on.
  // What it holds stays in place. Idempotent.
  void Leave();
  // The call has ended. What the reader holds stays held as long as its process lives, and is freed
  // if that is not known (or as SessionHooks::keeps_all says); nothing reaches the sink any more.
  // Ends requests to other nodes, so it is to be called without a lock. Idempotent; a second
  // caller waits until the first one has ended, so the stream is closed for every caller that has
  // returned.
  void Close() { CloseAs({.reader_is_done = false, .by_other = false}); }
  // The same for a reader that has said that it needs nothing any more: frees everything.
  void CloseDone() { CloseAs({.reader_is_done = true, .by_other = false}); }
  // What a later call of the reader does to this one; ends it by BatchSink::Closed.
  void CloseByOther(bool reader_is_done) {
    CloseAs({.reader_is_done = reader_is_done, .by_other = true});
  }

  // For the scheduler. Requested by Close.
  std::stop_token unwanted() const override { return closing_.get_token(); }
  std::uint64_t StepsUntil(const BatchName& name) const override;
  void Answer(std::span<AnsweredBatch> batches) override;

 private:
  struct Closing {
    bool reader_is_done = false;  // it has no batch any more
    bool by_other = false;        // the owner of the sink does not know yet
  };
  void CloseAs(const Closing& closing) FOREBAY_EXCLUDES(close_mutex_);
  void CountLocked(const BatchJob& job, const AssembledBatch& batch) FOREBAY_REQUIRES(mutex_);

  const std::shared_ptr<const StreamSpec> spec_;
  const std::shared_ptr<StreamSlots> slots_;
  const std::shared_ptr<const io::ProcessWatch> process_;
  const SessionParts parts_;
  std::stop_source closing_;
  std::atomic<bool> has_left_ = false;

  // Held from the beginning of Close to its end, so that a second caller waits. Neither the sink
  // nor what Close calls may call Close of the same session.
  Mutex close_mutex_ FOREBAY_ACQUIRED_BEFORE(sink_mutex_, mutex_);
  // Held while the sink is called.
  Mutex sink_mutex_ FOREBAY_ACQUIRED_BEFORE(mutex_);
  BatchSink* sink_ FOREBAY_GUARDED_BY(sink_mutex_);  // null once closed
  mutable Mutex mutex_;
  std::uint32_t under_way_ FOREBAY_GUARDED_BY(mutex_) = 0;
  HeldBatches held_ FOREBAY_GUARDED_BY(mutex_);  // empty once closed
  SessionStats stats_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stream
