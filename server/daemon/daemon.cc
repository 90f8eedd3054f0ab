#include "server/daemon/daemon.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/daemon/version.h"
#include "server/io/backend_selection.h"
#include "server/io/log.h"
#include "server/stage/request_gate.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr auto kLastAnswers = std::chrono::milliseconds(300);
constexpr std::uint64_t kIoThreads = 8;  // of the thread back end, beside those for the GFS
constexpr auto kLastReads = std::chrono::milliseconds(1'500);

std::string JobId(const Config& config) {
  if (!config.job_id.empty()) return config.job_id;
  for (const char* name : {"FOREBAY_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "local";
}

// It names a directory, and stands in logs and metrics.
Status CheckJobId(const std::string& job_id) {
  const bool plain = !job_id.empty() && job_id.size() <= limits::kJobIdBytesMax &&
                     job_id.front() != '.' &&
                     std::all_of(job_id.begin(), job_id.end(), [](unsigned char c) {
                       return std::isgraph(c) != 0 && c != '/';
                     });
  if (plain) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("daemon.job_id '{}' must be 1 to {} visible characters, without '/' "
                           "and not starting with '.'",
                           job_id, limits::kJobIdBytesMax));
}

// One spelling for each directory, so that two keys that name the same one are seen to.
std::string Spelled(const std::string& directory) {
  if (directory.empty()) return directory;
  std::error_code ignored;
  const std::filesystem::path path =
      std::filesystem::absolute(directory, ignored).lexically_normal();
  return path.has_filename() ? path.string() : path.parent_path().string();
}

std::uint64_t RandomGeneration() {
  std::uint64_t value = 0;
  while (value == 0) FOREBAY_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

std::string DirectoryOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::Start(const Config& config) {
  FOREBAY_TRY(CheckConfig(config));
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  FOREBAY_TRY(daemon->Open());
  return daemon;
}

Daemon::Daemon(const Config& config)
    : config_(config),
      generation_(RandomGeneration()),
      started_ns_(clock_.NowNs()),
      idle_since_ns_(started_ns_),
      job_id_(JobId(config)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      eviction_summary_(evictions_, clock_, [this](std::uint64_t hash) {
        for (const stage::Dataset* dataset : datasets_.All()) {
          if (dataset->hash() == hash) return dataset->name();
        }
        return std::string();
      }) {}

Daemon::~Daemon() { Stop(); }

Status Daemon::Open() {
  FOREBAY_TRY(OpenBackend());
  FOREBAY_TRY(OpenDirectories());
  FOREBAY_TRY(OpenMemory());
  FOREBAY_TRY(OpenSsd());
  FOREBAY_TRY(OpenDatasets());
  FOREBAY_TRY(OpenStreams());
  FOREBAY_TRY(OpenScrubber());
  FOREBAY_TRY(OpenServer());
  FOREBAY_TRY(OpenMetrics());
  for (stage::Dataset* dataset : datasets_.Served()) {
    if (dataset->options().stage_at_start) stager_->Stage(*dataset);
  }
  log::Info("forebayd {} serves job '{}' on unix:{} (ram {} MiB, slots {} MiB, ssd {} MiB, "
            "{})",
            kVersion, job_id_, socket_path_, arena_->capacity_bytes() >> 20,
            slots_->capacity_bytes() >> 20, store_ ? store_->capacity_bytes() >> 20 : 0,
            backend_->name());
  return {};
}

Status Daemon::OpenBackend() {
  io::BackendChoice choice = io::BackendChoice::kAutomatic;
  if (config_.io_backend == "io_uring") choice = io::BackendChoice::kIoUring;
  if (config_.io_backend == "threads") choice = io::BackendChoice::kThreads;
  // While the GFS does not answer, each request that is under way blocks a thread. There are
  // threads for as many requests as may be under way then, so that others are left to read the SSD.
  constexpr std::uint64_t kRequestsFactor = 1 + stage::RequestGate::kLentPerPermit;
  const std::uint64_t threads = std::min<std::uint64_t>(
      limits::kIoThreadsMax, kIoThreads + kRequestsFactor * config_.stage_requests);
  auto selected = io::SelectBackend(choice, threads);
  if (!selected.has_value()) return selected.error().WithContext("daemon.io_backend");
  if (selected->fallback_reason) {
    log::Warn("io_uring is not available, a pool of threads is used: {}",
              selected->fallback_reason->message());
  }
  backend_ = std::move(selected->backend);
  return {};
}

// One lease per directory that this daemon writes to.
Status Daemon::OpenDirectories() {
  FOREBAY_TRY(CheckJobId(job_id_));
  socket_path_ = Spelled(config_.socket.empty()
                             ? DefaultRuntimeDirectory(job_id_) + "/forebayd.sock"
                             : config_.socket);
  std::set<std::string> leased;
  for (const std::string& directory :
       {DirectoryOf(socket_path_), Spelled(config_.state_dir), Spelled(config_.ssd_directory)}) {
    if (directory.empty() || !leased.insert(directory).second) continue;
    FOREBAY_ASSIGN(auto lease, Lease::Take(directory));
    leases_.push_back(std::move(lease));
  }
  if (!config_.state_dir.empty()) {
    FOREBAY_ASSIGN(catalog_directory_, backend_->OpenDirectory(config_.state_dir));
  }
  return {};
}

bool Daemon::Tick() {
  gfs_calls_->Look();
  stager_->Look();
  const Status adjusted = executor_->AdjustTo(stager_->HeldUpThreads());
  if (!adjusted.has_value() && !lacks_worker_) {
    log::Warn("no additional worker (daemon.workers) could be started in place of one that is "
              "blocked by the GFS; batches are assembled more slowly until it answers: {}",
              adjusted.error().ToString());
  }
  lacks_worker_ = !adjusted.has_value();
  registry_->ExpireWaiting();
  eviction_summary_.Tick();
  const std::int64_t now = clock_.NowNs();
  if (acceptor_->connection_count() > 0) idle_since_ns_ = now;
  const std::int64_t idle_ns = now - idle_since_ns_;
  const bool idle = config_.exit_when_idle_s > 0 &&
                    idle_ns >= static_cast<std::int64_t>(config_.exit_when_idle_s) * 1'000 *
                                   kNsPerMs;
  if (idle) {
    log::Info("no client for {} s (daemon.exit_when_idle_s): draining",
              config_.exit_when_idle_s);
  }
  return drain_requested_ || failed_ || idle;
}

void Daemon::RequestDrain() {
  if (!drain_requested_.exchange(true)) log::Info("draining, as 'forebay drain' asks");
  WakeMainThread();
}

void Daemon::Fail(const Error& error) {
  if (!failed_.exchange(true)) {
    log::Error("forebayd cannot serve any more, and ends: {}", error.ToString());
  }
  WakeMainThread();
}

void Daemon::WakeMainThread() {
  const std::uint64_t one = 1;
  // Without a wake-up the next tick sees it.
  if (wake_fd_.valid()) static_cast<void>(!write(wake_fd_.get(), &one, sizeof(one)));
}

bool Daemon::Stop() {
  if (stopped_) return !leaves_threads_;
  stopped_ = true;
  stopping_ = true;
  const std::int64_t began_ns = clock_.NowNs();
  const bool has_served = acceptor_ != nullptr;
  if (acceptor_) acceptor_->StopAccepting();
  const Error leaving(ErrorCode::kUnavailable, "the daemon is shutting down");
  for (stage::Dataset* dataset : datasets_.All()) dataset->AbandonCatalogWaiters(leaving);
  if (server_) data_service_->Drain();
  // Not earlier: a reader is told that the daemon goes, not that its batch was cancelled.
  if (stager_) stager_->BeginStop();
  if (server_) {
    if (!data_service_->WaitDrained(std::chrono::milliseconds(limits::kLastMessagesMs))) {
      log::Warn("some clients did not read their last messages within {} ms; their connections "
                "are closed",
                limits::kLastMessagesMs);
      acceptor_->EndConnections();
      data_service_->WaitDrained(kLastAnswers);
    }
    // The server waits for idle connections too, whose clients need not be listening: no longer
    // than the last answers of other calls take.
    server_->Shutdown(std::chrono::system_clock::now() + kLastAnswers);
    server_->Wait();
  }
  if (acceptor_) acceptor_->Close();
  server_.reset();
  metrics_.reset();  // a last scrape still looks at the acceptor and what follows
  acceptor_.reset();
  if (executor_) executor_->BeginStop();
  scrubber_.reset();
  leaves_threads_ = (stager_ && !stager_->AwaitStopped(kLastReads)) ||
                    (executor_ && !executor_->AwaitStopped(kLastReads));
  if (leaves_threads_) {
    // These hold on to all that the rooms share. The directories are given up last.
    const std::string calls = gfs_calls_->UnderWay();
    log::Warn("forebayd exits without waiting for {}",
              calls.empty() ? "threads that do not end" : "an answer of the GFS: " + calls);
    leases_.clear();
    if (has_served) LogServed(began_ns);
    return false;
  }
  // Readers first: what they bring wakes batches, which the executor then drops.
  stager_.reset();
  executor_.reset();
  if (has_served) LogServed(began_ns);
  return true;
}

// The last lines: what a look at the log alone should tell of this daemon.
void Daemon::LogServed(std::int64_t drain_began_ns) {
  eviction_summary_.Log();
  const std::int64_t now_ns = clock_.NowNs();
  const stream::SessionStats served = registry_->totals();
  std::uint64_t gfs_bytes = 0;
  for (const stage::Dataset* dataset : datasets_.All()) gfs_bytes += dataset->progress().gfs_bytes;
  log::Info("drained in {:.1f} s after {:.0f} s of service: {} batches, {} samples, {} bytes "
            "delivered; {} bytes read from the GFS; forebayd stopped",
            static_cast<double>(now_ns - drain_began_ns) / 1e9,
            static_cast<double>(now_ns - started_ns_) / 1e9, served.batches, served.samples,
            served.bytes, gfs_bytes);
}

std::vector<std::string> Daemon::TransientPaths() const {
  std::vector<std::string> paths = {socket_path_};
  for (const Lease& lease : leases_) paths.push_back(lease.path());
  return paths;
}

std::vector<std::string> Daemon::DatasetNames() const {
  std::vector<std::string> names;
  for (const stage::Dataset* dataset : datasets_.Served()) names.push_back(dataset->name());
  return names;
}

std::vector<stage::Dataset*> Daemon::FindDatasets(const std::vector<std::string>& names,
                                                  std::string& unknown) {
  std::vector<stage::Dataset*> found;
  for (const std::string& name : names) {
    stage::Dataset* dataset = datasets_.Find(name);
    if (dataset == nullptr) {
      unknown = name.empty() ? "(no name)" : name;
      return {};
    }
    found.push_back(dataset);
  }
  return names.empty() ? datasets_.Served() : found;
}

// A rebuild makes another Dataset, for streams refer to the catalog of the one before, which is
// served until its objects have been looked at.
Result<stage::Dataset*> Daemon::StageNow(const std::string& name, bool rebuild) {
  MutexLock lock(staging_mutex_);
  stage::Dataset* const dataset = datasets_.Find(name);
  if (dataset == nullptr) return Error(ErrorCode::kNotFound, "no data set '" + name + "'");
  const stage::DatasetState state = dataset->progress().state;
  const bool is_under_way =
      state == stage::DatasetState::kCataloguing || state == stage::DatasetState::kStaging;
  const bool is_being_rebuilt = datasets_.IsBeingReplaced(name);
  if (rebuild && (is_under_way || is_being_rebuilt)) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("data set '{}' is {}; wait until it is done ('forebay stage {}' "
                             "waits), then rebuild it",
                             name,
                             is_being_rebuilt ? "being rebuilt" : stage::DatasetStateName(state),
                             name));
  }
  if (!rebuild || dataset->catalog() == nullptr) {
    stager_->Stage(*dataset, rebuild);
    return dataset;
  }
  FOREBAY_ASSIGN(auto made, OpenDataset(dataset->options()));
  stage::Dataset* const successor = made.get();
  FOREBAY_TRY(datasets_.Keep(std::move(made)));
  log::Info("data set '{}': rebuilding it from its objects as they are now", name);
  stager_->Replace(*dataset, *successor, [this, dataset, successor] {
    datasets_.Swap(*dataset, *successor);
    decoded_->Forget(dataset->hash());
  });
  // A batch of the data set before may have been decoded while it was replaced.
  successor->WhenCatalogued(
      [this, successor](const Status&) { decoded_->Forget(successor->hash()); });
  return successor;
}

}  // namespace forebay::daemon
