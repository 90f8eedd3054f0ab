// LocalStats: sizes and modification times of files that this node asks the GFS for, for itself and
// for other nodes of the job (StatSource). Each batch of paths is asked for once: a request for a
// batch that is under way waits for it, and recent batches are kept in memory for the nodes that
// come later.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/object_stats.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"

namespace forebay::stage {

// Thread-safe. What it keeps is a hint: an outcome that is lost costs calls to the GFS. It has
// threads of its own, which wait for the GFS and for nothing else, so that two nodes can wait for
// each other's answers. They are started by the first request of another node.
class LocalStats {
 public:
  using Outcome = std::shared_ptr<const catalog::StatOutcome>;
  using Done = std::function<void(Result<Outcome>)>;

  // Both are borrowed. `backend` is that of the GFS.
  LocalStats(io::IoBackend& backend, io::Clock& clock) : backend_(backend), clock_(clock) {}
  ~LocalStats() { BeginStop(); }

  // For another node: calls `done` once with the outcome for `paths`, perhaps within this call.
  // kResourceExhausted: this node asks the GFS for limits::kPeerStatBatchesMax batches already.
  // kCancelled: it is shutting down.
  void Answer(Dataset& dataset, std::span<const std::string> paths, const Done& done);
  // For this node: does the same, on the caller's thread, without that limit.
  catalog::StatOutcome Stat(Dataset& dataset, std::span<const std::string> paths);
  // Drops what is kept of a data set, of which files may have changed.
  void Forget(const Dataset& dataset);

  // Ends in two steps, as Stager does. Requests whose batch has not begun get kCancelled.
  void BeginStop();
  bool AwaitStopped(std::chrono::milliseconds wait);

 private:
  class Work;
  struct Kept {
    std::uint64_t dataset = 0;  // hash
    Outcome outcome;
    std::int64_t made_ns = 0;
  };

  std::shared_ptr<Work> Begin(Dataset& dataset, std::span<const std::string> paths,
                              const Done& done, std::size_t batches_max);
  void Complete(std::uint64_t key, const Dataset& dataset, const Result<Outcome>& outcome);
  void DropOldLocked() FOREBAY_REQUIRES(mutex_);
  Result<io::ThreadExecutor*> Threads();

  io::IoBackend& backend_;
  io::Clock& clock_;
  Mutex mutex_;
  bool is_stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  // By key of the batch: the requests that wait for it.
  std::unordered_map<std::uint64_t, std::vector<Done>> under_way_ FOREBAY_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Kept> kept_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> kept_order_ FOREBAY_GUARDED_BY(mutex_);  // keys, the oldest first
  std::uint64_t kept_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  // Last: its tasks complete their batches when they are dropped. Once set, it does not change.
  std::unique_ptr<io::ThreadExecutor> threads_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage
