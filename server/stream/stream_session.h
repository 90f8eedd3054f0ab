// StreamSession: one open stream of one rank. Keeps no delivery state, only what is owed: which
// pulls are under way and which batches the reader holds (credits). Transport-neutral: gRPC, or
// a test, stands behind BatchSink.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/result.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/batch_assembler.h"
#include "server/stream/future_use.h"
#include "server/stream/slot_board.h"
#include "server/stream/slot_ledger.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// Receives a session's output, from any thread, until the session is closed.
class BatchSink {
 public:
  virtual ~BatchSink() = default;
  // `id` is to be given to Release; the batch's memory, and `slot`, the part of it that is not
  // in the arena, stay in place until then.
  virtual void Deliver(std::uint64_t id, const AssembledBatch& batch,
                       std::span<const std::byte> slot) = 0;
  virtual void Fail(const BatchName& name, const Error& error) = 0;
};

struct SessionStats {
  std::uint64_t batches = 0, samples = 0, padded = 0, bytes = 0;
  std::uint64_t ram_samples = 0, ssd_samples = 0, waited_samples = 0, copied_views = 0;
  std::uint64_t ram_bytes = 0, ssd_bytes = 0;
  DecodeCounts decode;
  std::uint64_t digest = 0;  // sum of BatchDigest over delivered batches
  std::uint32_t held = 0;    // batches with the reader
};

// A pull as it came: `count` steps from `first` on.
struct PullRange {
  BatchName first;
  std::uint32_t count = 1;
};

// The slot memory that a batch may take, or has.
struct BatchRoom {
  bool is_promised = false;        // need_.held_bytes of its stream
  std::uint64_t excess_bytes = 0;  // beyond that
};

class StreamRegistry;

// Thread-safe. Made by StreamRegistry::Open; shared by the transport and the tasks under way.
class StreamSession : public std::enable_shared_from_this<StreamSession> {
 public:
  ~StreamSession();

  const StreamSpec& spec() const { return *spec_; }
  SessionStats stats() const;

  // Starts assembling. kResourceExhausted where the reader has too few credits left: a protocol
  // error, the stream must end. A name that does not exist fails alone, through the sink.
  Status Pull(const PullRange& range);
  // Frees held batches. kInvalidArgument for an id that is not held: a protocol error.
  Status Release(std::span<const std::uint64_t> ids);
  // The reader asks for no more: others may open the stream's name with other words from now on.
  // What it holds stays in place. Idempotent.
  void Leave();
  // Frees everything; nothing reaches the sink any more. Idempotent.
  void Close();
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  friend class StreamRegistry;
  StreamSession(StreamRegistry& registry, std::shared_ptr<const StreamSpec> spec,
                BatchSink* sink, const SlotNeed& need, std::uint32_t promised);

  // One batch on its way.
  struct Job;
  // One batch with the reader.
  struct Held {
    BatchHold hold;
    BatchRoom room;
  };
  void Start(const std::shared_ptr<Job>& job);
  void Advance(const std::shared_ptr<Job>& job, io::IoQueue& queue);
  bool PinExtents(const std::shared_ptr<Job>& job, std::unique_ptr<BatchAssembler>& assembler,
                  std::vector<tier::ExtentRef>& refs);
  static bool TakeWaitedFor(const Job& job, std::span<const ExtentId> extents,
                            std::vector<tier::ExtentRef>& refs);
  void AwaitExtents(const std::shared_ptr<Job>& job, std::vector<ExtentId> extents);
  void LackSlots(const std::shared_ptr<Job>& job, const Error& error, bool is_hopeless);
  void Finish(const std::shared_ptr<Job>& job, Result<AssembledBatch> outcome);
  void DropSlot(Job& job);
  bool Settle(const std::shared_ptr<Job>& job, Result<AssembledBatch>& outcome);
  void CountLocked(const Job& job, const AssembledBatch& batch);
  std::shared_ptr<const Order> OrderOf(EpochId epoch);
  AssembleLimits LimitsFor(std::span<const tier::ExtentRef> refs) const;
  void PinLocked(const BatchHold& hold);
  void UnpinLocked(const BatchHold& hold);

  StreamRegistry& registry_;
  const std::shared_ptr<const StreamSpec> spec_;
  const std::shared_ptr<StreamFuture> future_;
  const SlotNeed need_;             // of one batch
  const std::uint32_t promised_;    // batches that the registry has reserved as much for
  // Under the registry's lock: what of that no batch has, and the batches under way that have none
  // of it, in the order in which they were pulled. The first of them is the next to get some, or
  // later ones could keep the memory that it waits for.
  std::uint32_t promises_left_ = promised_;
  std::vector<Job*> unpromised_;
  std::uint64_t excess_bytes_ = 0;  // likewise: of all batches
  SlotBoard board_;      // of packed batches whose memory is reserved
  std::atomic<bool> closed_ = false;
  bool has_left_ = false;  // under the registry's lock

  std::mutex sink_mutex_;                 // held while the sink is called; before mutex_
  BatchSink* sink_;                       // null once closed
  mutable std::mutex mutex_;
  std::uint32_t under_way_ = 0;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Held> held_;
  // Extents that held batches pin, and by how many of them.
  std::unordered_map<const tier::ResidentExtent*, std::uint32_t> pins_;
  std::uint64_t pinned_bytes_ = 0;
  SessionStats stats_;
  std::shared_ptr<const Order> orders_[2];  // of two epochs, by parity
};

}  // namespace forebay::stream
