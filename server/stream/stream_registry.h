// StreamRegistry: all open streams of this daemon, and what the ranks of each agreed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
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
  SessionStats stats;
};

// Thread-safe.
class StreamRegistry {
 public:
  // `parts` and `future` are borrowed and must outlive the registry's sessions.
  StreamRegistry(const RegistryOptions& options, const SchedulerParts& parts, FutureUse& future);
  ~StreamRegistry();  // every session must have been closed

  // Opens a stream. kFailedPrecondition where another rank has it open with other words (both
  // are named) and has not left; kResourceExhausted where its batches would not fit in what slot
  // memory is left. The sink must live until Close().
  Result<std::shared_ptr<StreamSession>> Open(StreamSpec spec, BatchSink* sink);

  std::vector<StreamSummary> Summaries() const;
  // Totals over all streams since the start, closed ones included.
  SessionStats totals() const;
  std::size_t open_count() const;
  // From now on, what readers have when their streams are closed stays as it is until the registry
  // is destroyed. For a daemon that ends: streams end one after the other, and the memory of one
  // must not get the samples of another while its reader still reads it.
  void KeepWhatReadersHave();
  // See BatchScheduler; call about once a second.
  void ExpireWaiting() { scheduler_.ExpireWaiting(); }

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
    std::shared_ptr<StreamSlots> slots;
    std::shared_ptr<StreamFuture> future;
  };
  static std::string GroupName(const StreamSpec& spec);
  Status CheckJoinsLocked(const StreamSpec& spec, const Group& joining) const
      FOREBAY_REQUIRES(mutex_);
  void LeaveLocked(const StreamSpec& spec) FOREBAY_REQUIRES(mutex_);
  void Left(const StreamSession& session);
  void Closed(const StreamSession& session, bool has_left);
  bool Keep(std::vector<BatchHold>& holds);

  const RegistryOptions options_;
  FutureUse& future_;
  BatchScheduler scheduler_;
  mutable Mutex mutex_;
  std::map<std::string, Group> groups_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<OpenStream> sessions_ FOREBAY_GUARDED_BY(mutex_);  // in the order of opening
  SessionStats closed_totals_ FOREBAY_GUARDED_BY(mutex_);
  bool keeps_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::vector<BatchHold> kept_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stream
