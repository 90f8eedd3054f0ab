// A batch is in one of two tables: under way, with the callbacks of all who wait for it, or kept.
// The one that finds it in neither gets a Work, which asks the GFS and then completes the batch. A
// Work that is destroyed before it has run, because the threads stop, completes it with an error,
// so no callback is lost. Callbacks are called without the mutex.
#include "server/stage/cataloguing/local_stats.h"

#include <future>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/stage/stat_source.h"

namespace forebay::stage {
namespace {

constexpr std::size_t kUnusedQueueDepth = 1;  // of an I/O queue that the threads do not use

std::uint64_t BytesOf(const catalog::StatOutcome& outcome) {
  return outcome.infos.size() * sizeof(io::FileInfo);
}

Error Stopping() { return Error(ErrorCode::kCancelled, "the node is shutting down"); }

}  // namespace

// The right to ask the GFS for a batch, which one thread uses once.
class LocalStats::Work {
 public:
  Work(LocalStats& stats, Dataset& dataset, std::uint64_t key, std::span<const std::string> paths)
      : stats_(stats), dataset_(dataset), key_(key), paths_(paths.begin(), paths.end()) {}
  ~Work() {
    if (!has_run_) stats_.Complete(key_, dataset_, Stopping());
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void Run() {
    has_run_ = true;
    // Counted before the calls, so that a request that is answered was counted.
    dataset_.CountGfs(0, 0, 0, paths_.size());
    auto outcome = std::make_shared<const catalog::StatOutcome>(
        catalog::RootStats(dataset_.root()).Stat(paths_));
    stats_.Complete(key_, dataset_, Outcome(std::move(outcome)));
  }

 private:
  LocalStats& stats_;
  Dataset& dataset_;
  const std::uint64_t key_;
  const std::vector<std::string> paths_;
  bool has_run_ = false;
};

// Returns null if `done` was called, or will be by whoever has the work.
std::shared_ptr<LocalStats::Work> LocalStats::Begin(Dataset& dataset,
                                                    std::span<const std::string> paths,
                                                    const Done& done, std::size_t batches_max) {
  const std::uint64_t key = BatchKey(dataset.hash(), paths);
  Result<Outcome> known = Outcome();
  {
    const MutexLock lock(mutex_);
    DropOldLocked();
    if (const auto kept = kept_.find(key); kept != kept_.end()) {
      known = kept->second.outcome;
    } else if (const auto batch = under_way_.find(key); batch != under_way_.end()) {
      batch->second.push_back(done);
      return nullptr;
    } else if (is_stopping_) {
      known = Stopping();
    } else if (under_way_.size() >= batches_max) {
      known = Error(ErrorCode::kResourceExhausted,
                    fmt::format("this node asks the GFS for the sizes of {} batches of files at a "
                                "time",
                                batches_max));
    } else {
      under_way_[key].push_back(done);
      return std::make_shared<Work>(*this, dataset, key, paths);
    }
  }
  done(known);
  return nullptr;
}

void LocalStats::Answer(Dataset& dataset, std::span<const std::string> paths, const Done& done) {
  const Result<io::ThreadExecutor*> threads = Threads();
  if (!threads.has_value()) return done(threads.error());
  std::shared_ptr<Work> work = Begin(dataset, paths, done, limits::kPeerStatBatchesMax);
  if (work != nullptr) {
    (*threads)->Post([work = std::move(work)](io::IoQueue&) { work->Run(); });
  }
}

catalog::StatOutcome LocalStats::Stat(Dataset& dataset, std::span<const std::string> paths) {
  const auto told = std::make_shared<std::promise<Result<Outcome>>>();
  const std::shared_ptr<Work> work =
      Begin(dataset, paths, [told](const Result<Outcome>& outcome) { told->set_value(outcome); },
            std::numeric_limits<std::size_t>::max());
  if (work != nullptr) work->Run();
  const Result<Outcome> outcome = told->get_future().get();
  if (!outcome.has_value()) return {.infos = {}, .error = outcome.error()};
  return **outcome;
}

void LocalStats::Complete(std::uint64_t key, const Dataset& dataset,
                          const Result<Outcome>& outcome) {
  std::vector<Done> waiting;
  {
    const MutexLock lock(mutex_);
    const auto batch = under_way_.find(key);
    waiting = std::move(batch->second);
    under_way_.erase(batch);
    // A file that is missing may be there when somebody asks again.
    if (outcome.has_value() && !(*outcome)->error) {
      kept_[key] = {.dataset = dataset.hash(), .outcome = *outcome, .made_ns = clock_.NowNs()};
      kept_order_.push_back(key);
      kept_bytes_ += BytesOf(**outcome);
    }
    DropOldLocked();
  }
  for (const Done& done : waiting) done(outcome);
}

void LocalStats::DropOldLocked() {
  const std::int64_t oldest_ns = clock_.NowNs() - limits::kPeerStatsKeptMs * 1'000'000;
  while (!kept_order_.empty()) {
    const auto oldest = kept_.find(kept_order_.front());
    const bool is_old = oldest->second.made_ns < oldest_ns;
    if (!is_old && kept_bytes_ <= limits::kPeerStatsKeptBytesMax) return;
    kept_bytes_ -= BytesOf(*oldest->second.outcome);
    kept_.erase(oldest);
    kept_order_.pop_front();
  }
}

void LocalStats::Forget(const Dataset& dataset) {
  const MutexLock lock(mutex_);
  std::erase_if(kept_order_, [&](std::uint64_t key) FOREBAY_REQUIRES(mutex_) {
    const auto kept = kept_.find(key);
    if (kept->second.dataset != dataset.hash()) return false;
    kept_bytes_ -= BytesOf(*kept->second.outcome);
    kept_.erase(kept);
    return true;
  });
}

Result<io::ThreadExecutor*> LocalStats::Threads() {
  const MutexLock lock(mutex_);
  if (is_stopping_) return Stopping();
  if (threads_ == nullptr) {
    FOREBAY_ASSIGN(threads_, io::ThreadExecutor::Create(backend_, limits::kPeerStatThreads,
                                                        kUnusedQueueDepth));
  }
  return threads_.get();
}

void LocalStats::BeginStop() {
  io::ThreadExecutor* threads = nullptr;
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    threads = threads_.get();
  }
  // Without the lock, which the tasks that are dropped take.
  if (threads != nullptr) threads->BeginStop();
}

bool LocalStats::AwaitStopped(std::chrono::milliseconds wait) {
  io::ThreadExecutor* threads = nullptr;
  {
    const MutexLock lock(mutex_);
    threads = threads_.get();
  }
  return threads == nullptr || threads->AwaitStopped(wait);
}

}  // namespace forebay::stage
