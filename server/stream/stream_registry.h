// StreamRegistry: all open streams of this daemon, what they agreed on, and the slot memory they
// share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/executor.h"
#include "server/fetch/fetcher.h"
#include "server/io/clock.h"
#include "server/stream/batch_assembler.h"
#include "server/stream/future_use.h"
#include "server/stream/slot_ledger.h"
#include "server/stream/stream_session.h"
#include "server/tier/ram_arena.h"

namespace forebay::stream {

struct RegistryOptions {
  bool has_ssd = false;  // batches may need slot memory to read from SSD
  std::uint64_t view_pin_bytes = limits::kViewPinnedBytesDefault;  // per stream
  // What was decoded for batches that wait for slot memory, of all streams together.
  std::uint64_t gathered_bytes = 16 * limits::kDecodeReadBytesMax;
  std::uint32_t streams_max = limits::kClientsMax * limits::kStreamsPerClientMax;
};

// What streams work with; borrowed, must outlive the registry's sessions.
struct RegistryParts {
  fetch::Fetcher& fetcher;
  fetch::DecodedCache& decoded;
  fetch::Executor& executor;
  tier::RamArena& slots;
  FutureUse& future;
  io::Clock& clock;
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
  StreamRegistry(const RegistryOptions& options, RegistryParts parts);
  ~StreamRegistry();  // every session must have been closed

  // Opens a stream. kFailedPrecondition where another rank has it open with other words (both
  // are named) and has not left; kResourceExhausted where its batches would not fit in what slot
  // memory is left. The sink must live until Close().
  Result<std::shared_ptr<StreamSession>> Open(StreamSpec spec, BatchSink* sink);

  std::vector<StreamSummary> Summaries() const;
  // Totals over all streams since the start, closed ones included.
  SessionStats totals() const;
  std::size_t open_count() const;
  // Fails batches that have waited longer than limits::kPullDeadlineMs, for slot memory or for the
  // GFS, with a kUnavailable that says for what; their readers may ask again. Does not wake batches
  // that can go on: that is done by whoever frees memory or brings extents. Call about once a
  // second.
  void ExpireWaiting();

 private:
  friend class StreamSession;
  // What ranks of one stream must agree on.
  struct Group {
    std::string selection;
    OrderSpec order;
    std::uint64_t global_batch = 0;
    std::uint64_t ranks = 0;
    std::uint32_t members = 0;
  };
  static std::string GroupName(const StreamSpec& spec);
  void Left(StreamSession& session);
  void LeftLocked(StreamSession& session);
  void Closed(StreamSession& session);
  // Before slot memory is asked for. False: the job waits for others' scratch, and is parked.
  bool BeginAttempt(const std::shared_ptr<StreamSession::Job>& job, std::uint64_t scratch_bytes);
  // Its scratch, if any, is free again: whoever waits for that is tried.
  void EndAttempt(StreamSession::Job& job);
  // The same after an attempt that found no memory: parks the job, or has it tried again at
  // once where memory was freed since the attempt began.
  void ParkFailed(const std::shared_ptr<StreamSession::Job>& job);
  using Jobs = std::vector<std::shared_ptr<StreamSession::Job>>;
  // What was promised to the stream goes to what is pulled first.
  void Promise(StreamSession& session, const Jobs& jobs);
  // Of a batch that was put together in `bytes` of slot memory.
  SlotLedger::Excess TakeRoom(StreamSession::Job& job, std::uint64_t bytes);
  // Of a job that ends without a batch for the reader.
  void EndJob(StreamSession::Job& job);
  // Memory that readers had, or nobody took, is free: parked batches are tried again.
  void SlotsFreed(StreamSession& session, std::span<const BatchRoom> rooms);
  void GiveRoomLocked(StreamSession& session, const BatchRoom& room);
  // The job waits for extents, as long as EndAwait has not been called for it. That is false where
  // the job was failed meanwhile and is not to go on.
  void Await(const std::shared_ptr<StreamSession::Job>& job);
  bool EndAwait(const std::shared_ptr<StreamSession::Job>& job);
  Error LateExtent(const StreamSession::Job& job);
  // What is to be started afterwards, without the lock.
  Jobs EndScratchLocked(StreamSession::Job& job);
  Jobs ReleasedLocked();
  static void StartAll(const Jobs& jobs);
  // What an attempt has decoded, for the next one; as long as all jobs together keep no more
  // than the options allow.
  void KeepGathered(StreamSession::Job& job, BatchAssembler& assembler);
  static void ResumeGathered(StreamSession::Job& job, BatchAssembler& assembler);
  std::unique_ptr<BatchAssembler> TakeAssembler();
  void GiveAssembler(std::unique_ptr<BatchAssembler> assembler);

  const RegistryOptions options_;
  RegistryParts parts_;
  mutable std::mutex mutex_;
  std::map<std::string, Group> groups_;
  std::vector<StreamSession*> sessions_;
  SlotLedger ledger_;
  std::uint64_t releases_ = 0;  // times that slot memory became free
  SessionStats closed_totals_;
  Jobs parked_;
  std::unordered_set<std::shared_ptr<StreamSession::Job>> awaiting_;
  // Bytes that jobs may still keep of what was decoded for them.
  const std::shared_ptr<std::atomic<std::uint64_t>> gathered_account_ =
      std::make_shared<std::atomic<std::uint64_t>>(options_.gathered_bytes);
  std::vector<std::unique_ptr<BatchAssembler>> assemblers_;
};

}  // namespace forebay::stream
