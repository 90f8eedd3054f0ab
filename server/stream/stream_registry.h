// StreamRegistry: all open streams of this daemon, what the ranks of each agreed on, and what
// readers have whose calls have ended unexpectedly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/stream/batch_scheduler.h"
#include "server/stream/future_use.h"
#include "server/stream/stream_session.h"

namespace forebay::stream {

struct RegistryOptions {
  SchedulerOptions batches = {};
  std::uint32_t streams_max = limits::kClientsMax * limits::kStreamsPerClientMax;
};

// What one open stream looks like from outside.
struct StreamSummary {
  std::string stream_name, dataset;
  ClientIdentity client;
  std::uint32_t rank = 0, ranks = 0, credits = 0;
  // The call has ended unexpectedly. Of `stats`, only `held` is set then.
  bool is_cut_off = false;
  SessionStats stats;
};

// Thread-safe.
class StreamRegistry {
 public:
  // `parts` and `future` are borrowed and must outlive the registry's sessions.
  StreamRegistry(const RegistryOptions& options, const SchedulerParts& parts, FutureUse& future);
  ~StreamRegistry();  // every session must have been closed

  // Opens a stream. `still_held`: the batches of former calls that the reader has, which keep their
  // ids; its other batches are freed. A call of the same reader that is still open is closed first.
  // kFailedPrecondition where another rank has it open with other words (both are named) and has
  // not left, or the reader has batches of another stream; kResourceExhausted where its batches
  // would not fit in what slot memory is left; kUnavailable while the reader's former call is being
  // closed; kCancelled if this call is older than another one of the reader. The sink must live
  // until Close().
  Result<std::shared_ptr<StreamSession>> Open(StreamSpec spec, BatchSink* sink,
                                              std::span<const std::uint64_t> still_held = {});
  // These readers (StreamSpec::reader) have no batch any more: frees what was kept for them, and
  // closes calls of theirs whose end is not known yet.
  void Forget(std::span<const std::uint64_t> readers);
  // Frees what was kept for readers whose processes have ended. Call about once a second.
  void FreeWhatNobodyReads();

  std::vector<StreamSummary> Summaries() const;
  // Totals over all streams since the start, closed ones included. `held` counts what is kept, too.
  SessionStats totals() const;
  std::size_t open_count() const;
  // From now on, what readers have when their streams are closed stays as it is until the registry
  // is destroyed. For a daemon that ends: streams end one after the other, and the memory of one
  // must not get the samples of another while its reader still reads it.
  void KeepWhatReadersHave();
  // See BatchScheduler; call about once a second.
  void ExpireWaiting() { scheduler_.ExpireWaiting(); }
  // Likewise, for all that wait for extents now.
  void ExpireAwaiting(std::int64_t since_ns) { scheduler_.ExpireAwaiting(since_ns); }

 private:
  // What ranks of one stream must agree on.
  struct Group {
    std::string selection;
    OrderSpec order;
    std::uint64_t global_batch = 0;
    std::uint64_t ranks = 0;
    std::uint32_t members = 0;
  };
  struct OpenStream {
    const StreamSession* session = nullptr;
    std::weak_ptr<StreamSession> owned;
    std::shared_ptr<StreamFuture> future;
  };
  static std::string GroupName(const StreamSpec& spec);
  // Closes the open calls that `is_it` is true of.
  template <typename Condition>
  void CloseOpen(Condition is_it, bool reader_is_done) FOREBAY_EXCLUDES(mutex_);
  Result<StreamReader> AdmitLocked(std::shared_ptr<const StreamSpec> spec) FOREBAY_REQUIRES(mutex_);
  SessionHooks MakeHooks();
  Status CheckJoinsLocked(const StreamSpec& spec, const Group& joining) const
      FOREBAY_REQUIRES(mutex_);
  void LeaveLocked(const StreamSpec& spec) FOREBAY_REQUIRES(mutex_);
  void Left(const StreamSession& session);
  bool KeepsAll() const;
  void Closed(const StreamSession& session, StreamReader reader, bool has_left);
  // Frees what was kept for the cut-off readers that `ends` is true of.
  template <typename Ends>
  void Drop(Ends ends) FOREBAY_EXCLUDES(mutex_);

  const RegistryOptions options_;
  FutureUse& future_;
  BatchScheduler scheduler_;
  mutable Mutex mutex_;
  std::map<std::string, Group> groups_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<OpenStream> sessions_ FOREBAY_GUARDED_BY(mutex_);  // in the order of opening
  SessionStats closed_totals_ FOREBAY_GUARDED_BY(mutex_);
  bool keeps_all_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::vector<StreamReader> cut_off_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stream
