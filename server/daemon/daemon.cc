// Start and end of a daemon, its housekeeping, and what the admin service asks of it. The order of
// the Open functions is the order of the members in daemon.h, because each room uses those before
// it. daemon_rooms.cc opens the rooms on a byte's path, daemon_server.cc what clients connect to.
#include "server/daemon/daemon.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/daemon/config/tier_config.h"
#include "server/daemon/daemon_paths.h"
#include "server/daemon/version.h"
#include "server/io/backend_selection.h"
#include "server/io/log.h"
#include "server/stage/gfs/request_gate.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::int64_t kThrottledNs = kNsPerSecond;
// Parts of the ten seconds within which a daemon that gets SIGTERM has ended:
constexpr auto kLastAnswers = std::chrono::milliseconds(300);  // for gRPC calls to end
constexpr auto kLastReads = std::chrono::milliseconds(1'500);  // for threads in I/O to end
constexpr std::uint64_t kIoThreads = 8;  // of the thread back end, in addition to those for the GFS

// Tells this daemon from earlier ones on the same socket. Clients compare it with the generation of
// each region and of Hello's reply, so that they never mix the memory of two daemons.
std::uint64_t RandomGeneration() {
  std::uint64_t value = 0;
  while (value == 0) FOREBAY_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::Start(const Config& config, int stop_fd) {
  FOREBAY_TRY(CheckConfig(config));
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  FOREBAY_TRY(daemon->Open(stop_fd));
  return daemon;
}

Daemon::Daemon(const Config& config)
    : config_(config),
      generation_(RandomGeneration()),
      started_ns_(clock_.NowNs()),
      idle_since_ns_(started_ns_),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      eviction_summary_(evictions_, clock_, [this](std::uint64_t hash) {
        // Replaced data sets, too: their extents are evicted long after the rebuild.
        for (const stage::Dataset* dataset : datasets_.All()) {
          if (dataset->hash() == hash) return dataset->name();
        }
        return std::string();
      }) {}

Daemon::~Daemon() { Stop(); }

Status Daemon::Open(int stop_fd) {
  // A failure returns at once; the destructor closes what is open, in reverse order.
  FOREBAY_TRY(OpenJob());
  FOREBAY_TRY(OpenBackend());
  FOREBAY_TRY(OpenDirectories(stop_fd));
  FOREBAY_TRY(OpenMemory());
  FOREBAY_TRY(OpenSsd());
  FOREBAY_TRY(OpenDatasets());
  // After everything that may take long, because other nodes wait for this one from here on.
  FOREBAY_TRY(OpenNodes(stop_fd));
  FOREBAY_TRY(OpenStager());
  FOREBAY_TRY(OpenStreams());
  FOREBAY_TRY(ServeNodes());
  FOREBAY_TRY(OpenScrubber());
  FOREBAY_TRY(OpenServer());
  FOREBAY_TRY(OpenMetrics());
  // Staging begins last, so that a start that fails has staged nothing.
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

// The job's id comes first, because directories are named by it.
Status Daemon::OpenJob() {
  FOREBAY_ASSIGN(launch_, FindJobLaunch(config_, clock_));
  job_id_ = launch_.launch.job.name;
  return {};
}

Status Daemon::OpenBackend() {
  // While the GFS does not answer, each request under way blocks a thread of the thread back end.
  // The back end has threads for as many requests as the gate then admits, in addition to
  // kIoThreads, so that reads from SSD continue.
  constexpr std::uint64_t kRequestsFactor = 1 + stage::RequestGate::kLentPerPermit;
  const std::uint64_t threads = std::min<std::uint64_t>(
      limits::kIoThreadsMax, kIoThreads + kRequestsFactor * config_.stage_requests);
  auto selected = io::SelectBackend(ConfiguredBackend(config_), threads);
  if (!selected.has_value()) return selected.error().WithContext("daemon.io_backend");
  // Containers often forbid io_uring. Threads serve as well, but use more processor time.
  if (selected->fallback_reason) {
    log::Warn("io_uring is not available; using a pool of threads (daemon.io_backend): {}",
              selected->fallback_reason->message());
  }
  backend_ = std::move(selected->backend);
  return {};
}

// Takes one lease for each directory that this daemon writes to: of the socket, of saved catalogs
// and of the SSD tier.
Status Daemon::OpenDirectories(int stop_fd) {
  const DaemonPaths paths = PathsOf(config_, job_id_);
  socket_path_ = paths.socket;
  std::set<std::string> leased;
  for (const std::string& directory :
       {paths.socket_directory, paths.state_directory, paths.ssd_directory}) {
    // Unset, or the same directory as before.
    if (directory.empty() || !leased.insert(directory).second) continue;
    FOREBAY_ASSIGN(auto lease, Lease::Take(directory, stop_fd));
    leases_.push_back(std::move(lease));
  }
  if (!config_.state_dir.empty()) {
    FOREBAY_ASSIGN(catalog_directory_, backend_->OpenDirectory(config_.state_dir));
  }
  return {};
}

bool Daemon::Tick() {
  // Read before anything is looked at, so that no later wake-up is lost.
  std::uint64_t wakes = 0;
  static_cast<void>(!read(wake_fd_.get(), &wakes, sizeof(wakes)));
  // While others read in place of this node, nobody has to wait for its calls for longer.
  gfs_calls_->SetLateAfter(nodes_->membership().Yields() ? GfsYield::kSlowNs
                                                         : gfs_calls_->hung_after_ns());
  // In this order: GfsCalls finds the calls that are not answered, then the stager and the executor
  // replace the threads that are blocked in them.
  gfs_calls_->Look();
  stager_->Look();
  fetcher_->LendPinsOf(static_cast<std::int64_t>(config_.stage_hung_after_s) * 1'000'000'000);
  std::vector<std::thread::id> blocked = stager_->BlockedThreads();
  // A worker that waits for the caps of the job is replaced too, so that batches that need nothing
  // from the GFS are not behind it.
  const std::vector<std::thread::id> waiting = gfs_throttle_.WaitingThreads(kThrottledNs);
  blocked.insert(blocked.end(), waiting.begin(), waiting.end());
  const Status adjusted = executor_->AdjustTo(blocked);
  if (!adjusted.has_value() && !lacks_worker_) {  // logged once, not once a second
    log::Warn("no additional worker (daemon.workers) could be started in place of one that is "
              "blocked by the GFS; batches are assembled more slowly until it answers: {}",
              adjusted.error().ToString());
  }
  lacks_worker_ = !adjusted.has_value();
  // Batches that have waited for an extent for too long fail now, with an error.
  registry_->ExpireWaiting();
  registry_->FreeWhatNobodyReads();
  data_service_->EndSilentCalls();
  if (own_rows_) own_rows_->Expire();
  const bool has_remote_clients = data_service_->has_remote_clients();
  nodes_->Tick(has_remote_clients);
  if (share_borrower_) {
    share_borrower_->Tick();
  } else {
    gfs_throttle_.Tick([](NodeRank) { return false; });  // for its figures
  }
  eviction_summary_.Tick();
  const std::int64_t now = clock_.NowNs();
  if (acceptor_->connection_count() > 0 || has_remote_clients) idle_since_ns_ = now;
  const std::int64_t idle_ns = now - idle_since_ns_;
  const bool idle = config_.exit_when_idle_s > 0 &&
                    idle_ns >= static_cast<std::int64_t>(config_.exit_when_idle_s) * kNsPerSecond;
  if (idle) {
    log::Info("no client for {} s (daemon.exit_when_idle_s): draining",
              config_.exit_when_idle_s);
  }
  // A client of a lost node reads here until its epoch has ended.
  const bool have_all_finished = nodes_->HaveAllFinished() && !has_remote_clients;
  return drain_requested_ || failed_ || idle || have_all_finished || nodes_->HasDeparted();
}

void Daemon::RequestDrain(bool after_all) {
  if (after_all) {
    nodes_->Finish();
  } else if (!drain_requested_.exchange(true)) {
    log::Info("draining: requested by 'forebay drain'");
  }
  WakeMainThread();
}

void Daemon::Fail(const Error& error) {
  if (!failed_.exchange(true)) {
    log::Error("forebayd can no longer serve, and ends: {}", error.ToString());
  }
  WakeMainThread();
}

void Daemon::WakeMainThread() {
  const std::uint64_t one = 1;
  // A failure to wake is harmless: the next call of Tick, at most a second later, sees the request.
  if (wake_fd_.valid()) static_cast<void>(!write(wake_fd_.get(), &one, sizeof(one)));
}

// The order matters: first nobody new is admitted, then streams end while everything still works,
// then gRPC, and only then the threads and rooms that calls may have been using.
bool Daemon::Stop() {
  // The destructor calls Stop again.
  if (stopped_) return !leaves_threads_;
  stopped_ = true;
  stopping_ = true;
  const std::int64_t began_ns = clock_.NowNs();
  const bool has_served = acceptor_ != nullptr;
  stop_steps_->Begin("its lock files");
  for (const Lease& lease : leases_) lease.MarkEnding();
  if (acceptor_) acceptor_->StopAccepting();
  // Long before it is waited for: with the lowest priority, its thread may take seconds to end.
  if (scrubber_) scrubber_->BeginStop();
  const Error leaving(ErrorCode::kUnavailable, "the daemon is shutting down");
  // Their calls would otherwise keep gRPC waiting for a catalog that nobody builds any more.
  for (stage::Dataset* dataset : datasets_.All()) dataset->AbandonCatalogWaiters(leaving);
  if (server_) data_service_->Drain();
  // After Drain: readers must get "shutting down", not the stager's "cancelled" for their batches.
  if (stager_) stager_->BeginStop();
  // Threads of the stager may be waiting for other nodes, and other nodes for this one: those go on
  // with the next node at once.
  stop_steps_->Begin("requests to other nodes and from them");
  if (nodes_) {
    nodes_->StopAsking();
    nodes_->StopAnswering(/*waits=*/false);
  }
  if (server_) EndCalls();
  // Removes the socket: from here on, a new client fails at once and does not hang.
  if (acceptor_) acceptor_->Close();
  server_.reset();
  stop_steps_->Begin("the metrics endpoint and the acceptor");
  metrics_.reset();  // before the acceptor: a scrape that is under way still uses what follows
  acceptor_.reset();
  if (executor_) executor_->BeginStop();
  if (resolvers_) resolvers_->BeginStop();
  stop_steps_->Begin("the scrubber");
  // Its thread reads the cache, which is destroyed later.
  scrubber_.reset();
  stop_steps_->Begin("threads that stage extents, assemble batches or read split files");
  leaves_threads_ = (stager_ && !stager_->AwaitStopped(kLastReads)) ||
                    (executor_ && !executor_->AwaitStopped(kLastReads)) ||
                    (resolvers_ && !resolvers_->AwaitStopped(kLastReads));
  if (leaves_threads_) {
    // The blocked threads use the rooms, so none is destroyed. Only the leases end, which lets the
    // next daemon start.
    const std::string calls = gfs_calls_->UnderWay();
    log::Warn("forebayd exits without waiting for {}",
              calls.empty() ? "threads that do not end" : "an answer of the GFS: " + calls);
    leases_.clear();
    stop_steps_->Begin("its log");
    if (has_served) LogServed(began_ns);
    return false;
  }
  // Now that no thread is blocked: waits for answers to other nodes that are still being copied,
  // and for the GFS, from which this node's entry is removed.
  stop_steps_->Begin("answers to other nodes");
  if (nodes_) {
    nodes_->StopAnswering(/*waits=*/true);
    stop_steps_->Begin("the end of MPI, or the rendezvous, from which its entry is removed");
    nodes_->Leave(/*in_good_order=*/has_served && !failed_);
  }
  stop_steps_->Begin("its threads to be joined");
  // The stager first: an extent that it still stages wakes batches, which the executor then drops.
  stager_.reset();
  executor_.reset();
  resolvers_.reset();
  stop_steps_->Begin("its memory to be freed, or for a PMIx server");
  if (has_served) LogServed(began_ns);
  return true;
}

// Ends the gRPC server of clients, whose streams have been told to end.
void Daemon::EndCalls() {
  stop_steps_->Begin("readers to read their last messages");
  if (!data_service_->WaitDrained(std::chrono::milliseconds(limits::kLastMessagesMs))) {
    log::Warn("some clients did not read their last messages within {} ms; their connections "
              "are closed",
              limits::kLastMessagesMs);
    acceptor_->EndConnections();
    data_service_->WaitDrained(kLastAnswers);
  }
  stop_steps_->Begin("calls of clients to end");
  // Shutdown waits for idle connections too, whose clients may never close them; the deadline
  // gives calls that are ending just the time for their answers.
  server_->Shutdown(std::chrono::system_clock::now() + kLastAnswers);
  server_->Wait();
}

// Summarises the daemon's service in the last lines of its log.
void Daemon::LogServed(std::int64_t drain_began_ns) {
  eviction_summary_.Log();
  const std::int64_t now_ns = clock_.NowNs();
  const stream::SessionStats served = registry_->totals();
  std::uint64_t gfs_bytes = 0;
  for (const stage::Dataset* dataset : datasets_.All()) gfs_bytes += dataset->progress().gfs_bytes;
  log::Info("drained in {:.1f} s{} after {:.0f} s of service: {} batches, {} samples, {} bytes "
            "delivered; {} bytes read from the GFS; forebayd stopped",
            static_cast<double>(now_ns - drain_began_ns) / 1e9, stop_steps_->Longest(),
            static_cast<double>(now_ns - started_ns_) / 1e9, served.batches, served.samples,
            served.bytes, gfs_bytes);
}

std::vector<std::string> Daemon::TransientPaths() const {
  // These paths remain on disk if the process ends without running destructors.
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
  // No name means all.
  return names.empty() ? datasets_.Served() : found;
}

// A rebuild makes a new Dataset, because streams use the catalog of the old one. The old one is
// served until the new catalog is known (or, for formats that need a pass, until the pass begins).
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
  // Without a catalog no stream uses the Dataset, so it can be catalogued again itself.
  if (!rebuild || dataset->catalog() == nullptr) {
    // A pass that is under way goes on.
    stager_->Stage(*dataset, rebuild);
    return dataset;
  }
  FOREBAY_ASSIGN(auto made, OpenDataset(dataset->options()));
  stage::Dataset* const successor = made.get();
  // First, because from Replace on the stager uses it.
  FOREBAY_TRY(datasets_.Keep(std::move(made)));
  log::Info("data set '{}': rebuilding it from its objects on the GFS as they are now", name);
  stager_->Replace(*dataset, *successor, [this, dataset, successor] {
    datasets_.Swap(*dataset, *successor);
    // A decoded chunk has no version: the keys of the new catalog may be the same.
    decoded_->Forget(dataset->hash());
  });
  // A batch of the old data set may have decoded chunks after the first Forget. They may have the
  // keys of the new ones, so they are dropped once more when the new catalog is complete.
  successor->WhenCatalogued(
      [this, successor](const Status&) { decoded_->Forget(successor->hash()); });
  return successor;
}

}  // namespace forebay::daemon
