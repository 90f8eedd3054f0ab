// BatchJob: one batch on its way through the BatchScheduler, and whom it is for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/budget_share.h"
#include "server/fetch/packed/remote_chunks.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/gatherer.h"
#include "server/stream/packed/slot_board.h"
#include "server/stream/slot_ledger.h"
#include "server/stream/stream_spec.h"
#include "server/tier/extent_cache.h"

namespace forebay::stream {

struct BatchJob;
struct AnsweredBatch;

// The slot memory that a batch may take, or has.
struct BatchRoom {
  bool is_promised = false;        // SlotNeed::held_bytes of its stream
  std::uint64_t excess_bytes = 0;  // beyond that
};

// The slot memory of one open stream. Made by SlotQueue::Admit. All but `board` and what is const
// is guarded by SlotQueue::mutex_.
struct StreamSlots {
  StreamSlots(std::shared_ptr<const StreamSpec> spec, const SlotNeed& of_batch,
              std::uint32_t batches)
      : need(of_batch), promised(batches), promises_left(batches), board(std::move(spec)) {}

  const SlotNeed need;           // of one batch
  const std::uint32_t promised;  // batches for which as much is reserved
  std::uint32_t promises_left;   // of these, how many no batch has
  // The batches under way without a promise, in the order in which they were pulled. The first of
  // them gets the next promise, or later ones could keep the memory that it waits for.
  // Expired ones were dropped by an executor that stops.
  std::vector<std::weak_ptr<BatchJob>> unpromised;
  std::uint64_t excess_bytes = 0;  // of all batches
  SlotBoard board;                 // of packed batches whose memory is reserved
  // Until then, by the scheduler's clock, each batch asks other nodes alone. RemoteWaits sets it.
  std::atomic<std::int64_t> asks_alone_until_ns = 0;
};

// The stream that a batch is for, as the scheduler sees it. Called from any thread, without a lock
// of the scheduler; `closed` also under SlotQueue::mutex_. Implemented by StreamSession.
class BatchOwner {
 public:
  virtual ~BatchOwner() = default;
  virtual const StreamSpec& spec() const = 0;
  // Nobody wants the stream's batches any more.
  virtual std::stop_token unwanted() const = 0;
  bool closed() const { return unwanted().stop_requested(); }
  // In how many steps the reader needs the batch; 0: it waits for no other one before it.
  virtual std::uint64_t StepsUntil(const BatchName& name) const = 0;
  // Takes the batches, or their errors, of jobs that are done; called once for each job. Batches
  // that come in one call are announced to the reader together.
  virtual void Answer(std::span<AnsweredBatch> batches) = 0;
};

struct BatchJob : std::enable_shared_from_this<BatchJob> {
  std::shared_ptr<BatchOwner> owner;    // keeps it alive until the batch is answered
  std::shared_ptr<StreamSlots> slots;
  BatchName name;
  std::shared_ptr<BatchSlot> slot;      // of a packed batch whose stream shares slots
  std::vector<tier::ExtentRef> refs;    // pinned by a wait for the GFS
  GatheredValues gathered;              // decoded by an attempt that found no slot memory
  fetch::BudgetShare gathered_share;    // of what all jobs may keep so
  fetch::SentChunks sent_chunks;        // of other nodes, until the job has decoded them
  std::optional<std::int64_t> chunk_deadline_ns;  // since its first wait for chunks
  std::int64_t started_ns = 0;
  std::vector<ExtentId> awaited;        // extents that the job waits for
  std::int64_t awaited_since_ns = 0;
  std::atomic<bool> has_expired = false;  // it has waited for too long, and was answered
  int refetches = 0;                    // times that a copy had wrong bytes
  bool waited = false;                  // for the GFS
  bool wants_all_extents = false;       // what was decoded has gone while it waited
  bool pins_all = false;                // views: slot memory was short, so ViewPins is ignored
  bool takes_no_chunks = false;         // further ones of other nodes, because memory was short
  BatchRoom room;                       // under SlotQueue::mutex_ until it is answered
  // The job's attempts to get slot memory; used by SlotQueue and the scheduler alone.
  bool is_starved = false;              // an attempt has failed: the next ones are alone
  bool is_denied = false;               // parked for scratch, without an attempt
  bool takes_unasked = false;           // slot memory that the ledger knows nothing of
  bool has_scratch = false;
  std::uint64_t scratch_bytes = 0;      // where has_scratch
  std::uint64_t releases_seen = 0;      // when the attempt began
  bool slots_were_empty = false;        // likewise; of starved jobs only
  int hopeless_attempts = 0;            // that failed although nobody had memory before and after

  // Returns what the job's order needs of extents. The mode of all epochs but the first counts,
  // because the first one may have another mode.
  fetch::Need need() const {
    return owner->spec().ReadsRuns(EpochId(1)) ? fetch::Need::kRuns : fetch::Need::kSamples;
  }
};

// A job that has ended, with its batch or its error.
struct AnsweredBatch {
  std::shared_ptr<BatchJob> job;
  Result<AssembledBatch> outcome;
  // Set by an owner that takes the batch: the reader has it until it releases this id. 0: nobody
  // does, so its memory stays in `outcome`, and its room with the job.
  std::uint64_t id = 0;
  // The slot memory of a batch that was taken. It stays in place until the id is released.
  std::span<const std::byte> slot = {};

  bool is_taken() const { return id != 0; }
};

}  // namespace forebay::stream
