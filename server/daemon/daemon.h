// Daemon: constructs the rooms (folders of server/) in order, connects them, and takes them down in
// reverse. forebayd.cc makes one from the configuration and drives it from the main thread; the
// admin service calls it through AdminTarget.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/server.h>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"
#include "server/daemon/acceptor.h"
#include "server/daemon/admin_service.h"
#include "server/daemon/background_scrubber.h"
#include "server/daemon/config/config.h"
#include "server/daemon/dataset_table.h"
#include "server/daemon/eviction_summary.h"
#include "server/daemon/gfs_caps.h"
#include "server/daemon/job_launch.h"
#include "server/daemon/job_nodes.h"
#include "server/daemon/lease.h"
#include "server/daemon/metrics.h"
#include "server/daemon/stop_steps.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/local_rows.h"
#include "server/fetch/own_rows.h"
#include "server/fetch/row_router.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/io/io_backend.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/gfs_throttle.h"
#include "server/stage/gfs/patient_backend.h"
#include "server/stage/gfs/share_borrower.h"
#include "server/stage/hand_over.h"
#include "server/stage/local_extents.h"
#include "server/stage/local_first_reads.h"
#include "server/stage/stager.h"
#include "server/stream/rpc/data_service.h"
#include "server/stream/rpc/remote_data_service.h"
#include "server/stream/stream_registry.h"
#include "server/tier/eviction_ledger.h"
#include "server/tier/extent_cache.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::daemon {

// A running daemon. Made by Start, ended by Stop (or destruction). One thread calls Tick and Stop;
// what is thread-safe says so, and so are the calls of AdminTarget.
class Daemon final : public AdminTarget {
 public:
  // Takes the leases, opens tiers and data sets, starts staging and listening. Blocks on files of
  // the tiers, the state directory and the GFS. Errors name the configuration key or path; after an
  // error no file of the daemon is left. In a job of several nodes it waits for the others, for
  // nodes.rendezvous_timeout_s at most, and returns kCancelled when `stop_fd` becomes readable
  // meanwhile, from which it does not read; -1: it is not interrupted.
  static Result<std::unique_ptr<Daemon>> Start(const Config& config, int stop_fd = -1);
  ~Daemon() override;

  const std::string& socket_path() const { return socket_path_; }
  // How many daemons of other nodes its clients know, which serve them when this one is gone.
  int other_daemons_for_clients() const { return other_daemons_; }
  // Housekeeping; call it about once a second. Handles hung GFS calls, batches that have waited too
  // long, the eviction log and the idle time. Returns true if the daemon should stop: a drain was
  // requested and, with after_all, all nodes have finished; this node has left the job
  // (JobNodes::Depart); Fail was called; or no client was
  // connected for daemon.exit_when_idle_s.
  bool Tick();
  // Stops admitting clients, ends streams, gives readers limits::kLastMessagesMs to read their last
  // messages, and destroys the rooms. Returns false if threads are blocked, in a call that the GFS
  // does not answer or for another reason. The daemon's files are then removed, but the threads
  // still use the rooms, so it must not be destroyed: exit with std::_Exit.
  bool Stop();
  // For a thread that ends the process because Stop does not return in time: describes the calls to
  // the GFS that are under way; empty if there are none. Thread-safe.
  std::string GfsCallsUnderWay() const { return gfs_calls_->UnderWay(); }
  // Also for such a thread: what Stop, or the destructor after it, waits for. Outlives the daemon.
  std::shared_ptr<const StopSteps> stop_steps() const { return stop_steps_; }
  // Likewise: the socket and the lock files, which it removes because Stop does not.
  std::vector<std::string> TransientPaths() const;

  // AdminTarget.
  v1::StatusReply StatusNow() override;
  v1::NodesReply NodesNow() override;
  std::vector<stage::Dataset*> FindDatasets(const std::vector<std::string>& names,
                                            std::string& unknown) override;
  v1::DatasetStatus StatusOf(const stage::Dataset& dataset) override;
  Result<stage::Dataset*> StageNow(const std::string& name, bool rebuild) override;
  tier::ExtentCache& cache() override { return *cache_; }
  io::IoBackend& backend() override { return *backend_; }
  io::Clock& clock() override { return clock_; }
  void RequestDrain(bool after_all) override;
  Status RequestHandOver(const std::string& node, std::int64_t time_ms) override {
    return nodes_->Depart(node, time_ms);
  }
  // Requests the end of the daemon after an error that it cannot serve with. Logs the first error;
  // has_failed is true from then on. Thread-safe.
  void Fail(const Error& error);
  bool has_failed() const { return failed_; }
  // An eventfd that is readable when Tick has something to do: call it at once. Tick reads from it.
  int wake_fd() const { return wake_fd_.get(); }
  bool stopping() const override { return stopping_; }

 private:
  explicit Daemon(const Config& config);
  Status Open(int stop_fd);
  Status OpenJob();
  Status OpenBackend();
  Status OpenDirectories(int stop_fd);
  Status OpenMemory();
  void LogReservedPages() const;
  Status OpenSsd();
  Status OpenDatasets();
  Status OpenNodes(int stop_fd);
  Status OpenCaps();
  Status OpenStager();
  Status OpenScrubber();
  plan::TierSpace TierBytes() const;  // capacities
  std::uint32_t WorkerCount() const;  // threads that assemble batches
  Status OpenStreams();
  Status OpenServer();
  Status ServeNodes();
  Status OpenMetrics();
  Result<std::unique_ptr<stage::Dataset>> OpenDataset(const stage::DatasetOptions& options);
  std::vector<std::string> DatasetNames() const;
  peer::NodeReport ReportToNodes();  // any thread
  void WakeMainThread();
  void EndCalls();
  void LogServed(std::int64_t drain_began_ns);

  const Config config_;
  io::SteadyClock clock_;
  std::uint64_t generation_ = 0;
  std::int64_t started_ns_ = 0;
  std::int64_t idle_since_ns_ = 0;
  JobLaunch launch_;  // until OpenNodes
  std::string job_id_;
  std::string socket_path_;
  int other_daemons_ = 0;
  const UniqueFd wake_fd_;
  std::atomic<bool> drain_requested_ = false;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> stopping_ = false;
  const std::shared_ptr<StopSteps> stop_steps_ = std::make_shared<StopSteps>(clock_);
  bool stopped_ = false;
  bool leaves_threads_ = false;  // Stop found blocked threads
  bool lacks_worker_ = false;    // no spare worker could be started, and this was logged

  // In the order of wiring; taken down in reverse.
  std::vector<Lease> leases_;
  std::unique_ptr<io::IoBackend> backend_;
  std::unique_ptr<stage::GfsPatience> patience_;
  std::unique_ptr<stage::GfsCalls> gfs_calls_;
  stage::GfsThrottle gfs_throttle_{clock_};
  std::unique_ptr<stage::PatientBackend> gfs_backend_;  // backend_, for what lies on the GFS
  std::unique_ptr<io::Directory> catalog_directory_;
  std::unique_ptr<io::Directory> ssd_directory_;
  std::unique_ptr<tier::RamArena> arena_;
  std::unique_ptr<tier::RamArena> slots_;
  std::unique_ptr<tier::SegmentStore> store_;
  std::unique_ptr<stream::FutureUse> future_;
  tier::EvictionLedger evictions_;
  std::unique_ptr<tier::ExtentCache> cache_;
  DatasetTable datasets_;
  // Held during StageNow, so that a data set is rebuilt once at a time. Guards no member; taken
  // before the mutexes of the data sets, of their table and of the stager.
  Mutex staging_mutex_;
  GfsCaps gfs_caps_;                 // from OpenNodes on
  std::unique_ptr<stream::RemoteDataService> remote_data_;  // of nodes_; passes to data_service_
  std::unique_ptr<JobNodes> nodes_;
  std::optional<stage::ShareBorrower> share_borrower_;  // none: a job of one node, or without caps
  std::unique_ptr<stage::Stager> stager_;
  std::unique_ptr<fetch::Fetcher> fetcher_;
  std::unique_ptr<io::ThreadExecutor> executor_;
  std::unique_ptr<io::ThreadExecutor> resolvers_;  // of selections, which may wait for the GFS
  std::unique_ptr<fetch::DecodedCache> decoded_;
  std::unique_ptr<BackgroundScrubber> scrubber_;  // null: tier.scrub.enabled is false
  // All of these are null in a job of one node. The local ones answer other nodes.
  std::unique_ptr<stage::LocalExtents> local_extents_;
  std::unique_ptr<fetch::LocalRows> local_rows_;
  std::unique_ptr<stage::LocalFirstReads> local_first_reads_;
  std::unique_ptr<stage::HandOver> hand_over_;
  std::unique_ptr<fetch::OwnRows> own_rows_;
  std::unique_ptr<fetch::RowRouter> router_;
  std::unique_ptr<stream::StreamRegistry> registry_;
  std::unique_ptr<stream::DataService> data_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  EvictionSummary eviction_summary_;
};

}  // namespace forebay::daemon
