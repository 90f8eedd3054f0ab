// BatchScheduler: takes each batch that was asked for from its name to its owner, on the threads of
// an executor. A batch waits for extents that are not on a tier, for slot memory, and in a job of
// several nodes for what other nodes send; it is tried again when what it waits for is there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/row_router.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/stream/batch_job.h"
#include "server/stream/gatherer.h"
#include "server/stream/held_batches.h"
#include "server/stream/remote_waits.h"
#include "server/stream/slot_ledger.h"
#include "server/stream/slot_queue.h"
#include "server/stream/view_pins.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stream {

struct SchedulerOptions {
  bool has_ssd = false;  // batches may need slot memory to read from SSD
  std::uint64_t view_pin_bytes = limits::kViewPinnedBytesDefault;  // of all streams together
  // Limit for values that were decoded and are kept while their batches wait for slot memory, of
  // all streams together.
  std::uint64_t gathered_bytes = 16 * limits::kDecodeReadBytesMax;
  // Limit for chunks that other nodes send, until all batches that use them have decoded them, of
  // all streams together. Batches beyond it take rows, or copies of extents.
  std::uint64_t sent_chunk_bytes = limits::kPeerChunksHeldBytesMax;
};

// The parts that the scheduler uses. Borrowed; they must outlive all jobs.
struct SchedulerParts {
  fetch::Fetcher& fetcher;
  fetch::DecodedCache& decoded;
  io::Executor& executor;
  tier::RamArena& slots;
  io::Clock& clock;
  // Brings rows of other nodes, and those of this node that are asked for with them. Null: a job of
  // one node.
  fetch::RowRouter* rows = nullptr;
};

// Thread-safe. Outlives the jobs that were submitted.
class BatchScheduler {
 public:
  BatchScheduler(const SchedulerOptions& options, const SchedulerParts& parts);

  // Reserves slot memory for a new stream. kResourceExhausted, with the figures: its batches would
  // not fit in what is left.
  Result<std::shared_ptr<StreamSlots>> Admit(std::shared_ptr<const StreamSpec> spec);
  // Gives back what Admit has reserved. Call once the stream is closed.
  void Dismiss(const StreamSlots& slots);

  // Starts assembling these batches. Each ends in one call of owner->Answer, not within this one.
  // Small batches that need not wait end in one call together.
  void Submit(const std::shared_ptr<BatchOwner>& owner, const std::shared_ptr<StreamSlots>& slots,
              std::span<const BatchName> names);
  // Frees the memory of batches that the reader of a stream had, then tries batches again that wait
  // for slot memory. If `batches` is empty, the caller has freed memory already.
  void Release(StreamSlots& slots, std::vector<HeldBatches::Held> batches);
  // Fails batches that have waited longer than limits::kPullDeadlineMs, for slot memory, for the
  // GFS or for chunks of other nodes, with a kUnavailable that says for what; their readers may ask
  // again. Does not wake batches that can go on: that is done by whoever frees memory, or brings
  // extents or chunks. Call about once a second.
  void ExpireWaiting();
  // Ends the batches that have waited for extents since `since_ns` or longer, so that their clients
  // ask again.
  void ExpireAwaiting(std::int64_t since_ns);

 private:
  using JobRef = SlotQueue::JobRef;
  using Jobs = SlotQueue::Jobs;
  // The work of one task: jobs whose turn is to come, the next one last; the batches that are
  // complete and have not been handed over yet; and those whose rows have not been asked for yet.
  struct Round {
    Jobs waiting;
    std::vector<AnsweredBatch> complete;
    std::vector<RemoteWaits::RowsAwaited> lacking;
  };

  void Start(const JobRef& job);
  void StartAll(const Jobs& jobs);
  void StartTogether(Jobs jobs);
  void Run(Round round, io::IoQueue& queue);
  void EndRound(Round& round);
  void BreakUp(Round& round);
  void Advance(const JobRef& job, Round& round, io::IoQueue& queue);
  // The results of an attempt besides the batch: extents with wrong bytes, and rows that are not on
  // the tiers of this node.
  struct Attempt {
    std::vector<tier::BadExtent> bad;
    std::vector<fetch::RoutedRow> rows;
  };
  void AfterAttempt(const JobRef& job, Result<AssembledBatch> batch,
                    std::unique_ptr<Gatherer> gatherer, Attempt attempt, Round& round);
  ViewUse ViewUseOf(const BatchJob& job) const;
  static bool MayPinAll(const BatchJob& job);
  void Finish(const JobRef& job, Result<AssembledBatch> outcome);
  void HandOver(std::span<AnsweredBatch> batches);
  void DropSlot(BatchJob& job);

  // Waiting for extents.
  bool PinExtents(const JobRef& job, std::unique_ptr<Gatherer>& gatherer,
                  std::vector<tier::ExtentRef>& refs);
  static bool TakeWaitedFor(const BatchJob& job, std::span<const ExtentId> extents,
                            std::vector<tier::ExtentRef>& refs);
  void AwaitExtents(const JobRef& job, std::vector<ExtentId> extents);
  bool EndAwait(const JobRef& job);
  Error LateExtent(const BatchJob& job);
  // Which of the planned extents are needed on this node.
  fetch::Fetcher::Where WhereOf(const BatchJob& job) const;

  void LackSlots(const JobRef& job, const Error& error, bool is_hopeless);

  // Keeps the values that an attempt has decoded for the job's next attempt, unless all jobs
  // together would keep more than SchedulerOptions::gathered_bytes.
  void KeepGathered(BatchJob& job, Gatherer& gatherer);
  static void ResumeGathered(BatchJob& job, Gatherer& gatherer);
  std::unique_ptr<Gatherer> TakeGatherer(const BatchJob& job);
  void GiveGatherer(const BatchJob& job, std::unique_ptr<Gatherer> gatherer);

  const SchedulerOptions options_;
  const SchedulerParts parts_;
  ViewPins view_pins_;
  SlotQueue slots_;
  Mutex mutex_;
  std::unordered_set<JobRef> awaiting_ FOREBAY_GUARDED_BY(mutex_);  // wait for extents
  // Bytes that jobs may still keep of what was decoded for them.
  const std::shared_ptr<std::atomic<std::uint64_t>> gathered_account_ =
      std::make_shared<std::atomic<std::uint64_t>>(options_.gathered_bytes);
  std::optional<RemoteWaits> remote_;  // unset: a job of one node
  // Idle gatherers: [0] for raw data sets, [1] for packed ones.
  std::array<std::vector<std::unique_ptr<Gatherer>>, 2> gatherers_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stream
