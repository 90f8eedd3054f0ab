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
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <spdlog/spdlog.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/daemon/dataset_config.h"
#include "server/daemon/version.h"
#include "server/io/backend_selection.h"
#include "server/tier/capacity.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::uint64_t kRegionBytesMin = 1 * limits::kGiB;
constexpr std::uint64_t kArenaRegionsMax = 32;
// Of memory that is made ahead of its use: a first batch of samples of 100 KB with its prefetch and
// what the reader before still holds; an extent that is staged, and the next.
constexpr std::uint64_t kAheadBytes = 64 * limits::kMiB;
constexpr auto kLastAnswers = std::chrono::milliseconds(300);
constexpr std::size_t kWorkerDepth = 32;  // SSD reads in flight per worker

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

void AddRegions(const tier::RamArena& arena, RegionKind kind, std::uint64_t generation,
                std::vector<SharedEntry>& entries) {
  for (const tier::SharedRegion& region : arena.regions()) {
    SharedEntry shared;
    shared.entry.id = static_cast<std::uint32_t>(entries.size());
    shared.entry.kind = static_cast<std::uint32_t>(kind);
    shared.entry.bytes = region.bytes().size();
    shared.entry.page_bytes = limits::kIoAlignmentBytes;
    shared.entry.generation = generation;
    shared.fd = region.fd();
    entries.push_back(shared);
  }
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
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

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
  for (const auto& dataset : datasets_) {
    if (dataset->options().stage_at_start) stager_->Stage(*dataset);
  }
  spdlog::info("forebayd {} serves job '{}' on unix:{} (ram {} MiB, slots {} MiB, for leases {} "
               "MiB, ssd {} MiB, {})",
               kVersion, job_id_, socket_path_, arena_->capacity_bytes() >> 20,
               slots_->capacity_bytes() >> 20, arena_->withheld_bytes() >> 20,
               store_ ? store_->capacity_bytes() >> 20 : 0, backend_->name());
  return {};
}

Status Daemon::OpenBackend() {
  io::BackendChoice choice = io::BackendChoice::kAutomatic;
  if (config_.io_backend == "io_uring") choice = io::BackendChoice::kIoUring;
  if (config_.io_backend == "threads") choice = io::BackendChoice::kThreads;
  auto selected = io::SelectBackend(choice);
  if (!selected.has_value()) return selected.error().WithContext("daemon.io_backend");
  if (selected->fallback_reason) {
    spdlog::warn("io_uring is not available, a pool of threads is used: {}",
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

Status Daemon::OpenMemory() {
  const auto ram = tier::ParseCapacity(config_.ram_capacity, tier::MemoryLimitBytes());
  if (!ram.has_value()) return ram.error().WithContext("tier.ram.capacity");
  const auto slot_bytes = ParseByteCount(config_.slots_capacity, kSlotsBounds);
  if (!slot_bytes.has_value()) return slot_bytes.error().WithContext("slots.capacity");
  const std::uint64_t region_bytes =
      std::max(kRegionBytesMin, *ram / kArenaRegionsMax + limits::kMiB);
  FOREBAY_ASSIGN(arena_, tier::RamArena::Create({.capacity_bytes = *ram,
                                                 .region_bytes = region_bytes,
                                                 .first_region = RegionId(0),
                                                 .populate_ahead_bytes = kAheadBytes}));
  FOREBAY_TRY(OpenScratch(*ram));
  FOREBAY_ASSIGN(
      slots_, tier::RamArena::Create(
                  {.capacity_bytes = *slot_bytes,
                   .region_bytes = kRegionBytesMin,
                   .first_region = RegionId(static_cast<std::uint32_t>(
                       arena_->regions().size())),
                   .lowest_first = true,
                   .populate_ahead_bytes = kAheadBytes,
                   .populate_at_start = true}));
  return {};
}

// Before anything touches the arena, and before anybody plans with its capacity.
Status Daemon::OpenScratch(std::uint64_t ram_bytes) {
  const auto reserve = tier::ParseCapacityOrNone(config_.ram_scratch_reserve, ram_bytes);
  if (!reserve.has_value()) return reserve.error().WithContext("tier.ram.scratch_reserve");
  if (*reserve > 0 &&
      (*reserve > ram_bytes || ram_bytes - *reserve < limits::kExtentBytesMax)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("tier.ram.scratch_reserve of {} bytes leaves less than an extent can "
                             "take ({} bytes) of tier.ram.capacity, {} bytes: lower the one or "
                             "raise the other",
                             *reserve, limits::kExtentBytesMax, ram_bytes));
  }
  auto account = tier::ScratchAccount::Create(*arena_, *reserve);
  if (!account.has_value()) return account.error().WithContext("tier.ram.scratch_reserve");
  scratch_ = std::move(*account);
  return {};
}

Status Daemon::OpenSsd() {
  if (config_.ssd_directory.empty()) return {};
  FOREBAY_ASSIGN(ssd_directory_, backend_->OpenDirectory(config_.ssd_directory));
  FOREBAY_ASSIGN(const io::Directory::Space space, ssd_directory_->FreeSpace());
  const auto capacity = tier::ParseCapacity(config_.ssd_capacity, space.total_bytes);
  if (!capacity.has_value()) return capacity.error().WithContext("tier.ssd.capacity");
  FOREBAY_ASSIGN(store_, tier::SegmentStore::Open(
                             *backend_, *ssd_directory_,
                             {.capacity_bytes = *capacity, .direct = config_.ssd_direct}));
  const tier::SegmentStore::Recovery found = store_->recovery();
  if (found.segments + found.dropped_records + found.removed_files > 0) {
    spdlog::info("ssd tier: found {} segments, dropped {} records, removed {} files",
                 found.segments, found.dropped_records, found.removed_files);
  }
  return {};
}

Status Daemon::OpenDatasets() {
  cache_ = tier::ExtentCache::Create(
      *arena_, store_.get(), {.clock = &clock_},
      [this](const tier::ExtentKey& key) { return future_.NextUse(key); });
  for (const stage::DatasetOptions& options : config_.datasets) {
    auto root = backend_->OpenDirectory(options.root_path);
    if (!root.has_value()) {
      return root.error().WithContext(fmt::format("data set '{}': path {}", options.source.name,
                                                  options.root_path));
    }
    datasets_.push_back(
        std::make_unique<stage::Dataset>(options, *backend_, std::move(*root)));
  }
  const auto request = ParseByteCount(config_.stage_request, kRequestBounds);
  if (!request.has_value()) return request.error().WithContext("stage.request");
  // What readers hold while they copy to SSD, or pack, must not be planned away; a quarter of a
  // small arena is enough to make progress with.
  const bool packs = std::ranges::any_of(config_.datasets, [](const auto& dataset) {
    return dataset.compression != stage::Compression::kOff;
  });
  const std::uint64_t working =
      store_ || packs ? (config_.stage_readers + 1) * limits::kExtentBytesMax : 0;
  stage::StagerOptions options;
  options.readers = static_cast<std::uint32_t>(config_.stage_readers);
  options.requests = static_cast<std::uint32_t>(config_.stage_requests);
  options.request_bytes = *request;
  options.ram_reserve_bytes = std::min(working, arena_->capacity_bytes() / 4);
  options.catalog_path = config_.state_dir;
  const auto decoded = tier::ParseCapacity(config_.decode_capacity, tier::MemoryLimitBytes());
  if (!decoded.has_value()) return decoded.error().WithContext("decode.capacity");
  options.decoded_cache_bytes = *decoded;
  options.decode_cores = WorkerCount();
  FOREBAY_ASSIGN(stager_, stage::Stager::Create(
                              options, {.backend = *backend_,
                                        .catalogs = catalog_directory_.get(),
                                        .arena = *arena_,
                                        .store = store_.get(),
                                        .cache = *cache_,
                                        .clock = clock_,
                                        .next_use = [this](const tier::ExtentKey& key) {
                                          return future_.NextUse(key);
                                        }}));
  scratch_->PlanWith(
      {.left_bytes = [this] { return stager_->room_left().ram_bytes; },
       .take_bytes = [this](std::uint64_t bytes) { return stager_->TakeRam(bytes); },
       .give_bytes = [this](std::uint64_t bytes) { stager_->GiveRam(bytes); }});
  fetcher_ = std::make_unique<fetch::Fetcher>(*cache_, *stager_, peers_);
  return {};
}

Status Daemon::OpenScrubber() {
  if (!config_.scrub_enabled) return {};
  const auto rate = ParseByteCount(config_.scrub_bytes_per_second, kScrubBounds);
  if (!rate.has_value()) return rate.error().WithContext("tier.scrub.bytes_per_second");
  std::string unknown;
  FOREBAY_ASSIGN(scrubber_, BackgroundScrubber::Start(
                                {.cache = *cache_,
                                 .backend = *backend_,
                                 .clock = clock_,
                                 .pieces_of = PiecesOfDatasets(FindDatasets({}, unknown)),
                                 .decoded = decoded_.get()},
                                *rate));
  return {};
}

std::uint32_t Daemon::WorkerCount() const {
  if (config_.workers != 0) return static_cast<std::uint32_t>(config_.workers);
  // A worker's reads from SSD end before its batch does: a second one keeps the device busy
  // meanwhile, and costs no processor while it waits.
  return std::max(store_ ? 2U : 1U, std::thread::hardware_concurrency() / 2);
}

Status Daemon::OpenStreams() {
  FOREBAY_ASSIGN(executor_,
                 fetch::ThreadExecutor::Create(*backend_, WorkerCount(), kWorkerDepth));
  const auto pin = tier::ParseCapacity(config_.view_pin_capacity, arena_->capacity_bytes());
  if (!pin.has_value()) return pin.error().WithContext("stream.view_pin_capacity");
  const auto decoded = tier::ParseCapacity(config_.decode_capacity, tier::MemoryLimitBytes());
  if (!decoded.has_value()) return decoded.error().WithContext("decode.capacity");
  decoded_ = std::make_unique<fetch::DecodedCache>(
      *decoded,
      [this](const fetch::UnitSamples& samples) { return future_.NextUse(samples); });
  registry_ = std::make_unique<stream::StreamRegistry>(
      stream::RegistryOptions{.has_ssd = store_ != nullptr, .view_pin_bytes = *pin},
      stream::RegistryParts{.fetcher = *fetcher_,
                            .decoded = *decoded_,
                            .executor = *executor_,
                            .slots = *slots_,
                            .future = future_,
                            .clock = clock_});
  return {};
}

Status Daemon::OpenServer() {
  data_service_ = std::make_unique<stream::DataService>(
      stream::DataServiceOptions{.job_id = job_id_, .generation = generation_},
      stream::DataServiceParts{
          .registry = *registry_,
          .scratch = *scratch_,
          .find_dataset = [this](const std::string& name) { return FindDataset(name); },
          .dataset_names = [this] { return DatasetNames(); },
          .knows_session =
              [this](std::uint64_t session) {
                return acceptor_ && acceptor_->KnowsSession(session);
              },
          .ensure_staging = [this](stage::Dataset& dataset) {
            if (dataset.progress().state == stage::DatasetState::kIdle) {
              stager_->StageForReader(dataset);
            }
          }});
  admin_service_ = std::make_unique<AdminService>(*this);
  grpc::ServerBuilder builder;
  builder.RegisterService(data_service_.get());
  builder.RegisterService(admin_service_.get());
  builder.SetMaxReceiveMessageSize(limits::kRpcMessageBytesMax);
  builder.SetMaxSendMessageSize(limits::kRpcMessageBytesMax);
  // gRPC inflates before it checks sizes: only identity is spoken (design 8).
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits::kRpcMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             limits::kRpcStreamsPerConnectionMax);
  // Each call of the admin service takes a thread while it lasts; beyond this they are refused.
  // gRPC 1.51 collects a message before it compares its size with the limit above (512 MiB took
  // the daemon to 561 MiB): only the quota bounds what all connections can have it hold.
  grpc::ResourceQuota quota("forebayd");
  quota.SetMaxThreads(limits::kAdminThreadsMax);
  quota.Resize(limits::kRpcMemoryBytesMax);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  server_ = builder.BuildAndStart();
  if (!server_) return Error(ErrorCode::kInternal, "the gRPC server did not start");
  std::vector<SharedEntry> regions;
  AddRegions(*arena_, RegionKind::kArena, generation_, regions);
  AddRegions(*slots_, RegionKind::kSlots, generation_, regions);
  const auto hand_over = [this](UniqueFd fd, const PeerCredentials& peer) {
    // What gRPC will call the connection, as long as the descriptor is open.
    data_service_->Connected(fmt::format("fd:{}", fd.get()),
                             {.name = "", .pid = peer.pid, .uid = peer.uid});
    grpc::AddInsecureChannelFromFd(server_.get(), fd.Release());
  };
  FOREBAY_ASSIGN(acceptor_, Acceptor::Create({.socket_path = socket_path_,
                                              .generation = generation_,
                                              .connections_max = limits::kClientsMax},
                                             std::move(regions), clock_, hand_over));
  acceptor_->Start();
  return {};
}

Status Daemon::OpenMetrics() {
  if (config_.metrics_listen.empty()) return {};
  FOREBAY_ASSIGN(metrics_, MetricsEndpoint::Start(config_.metrics_listen,
                                                  [this] { return StatusNow(); }));
  spdlog::info("metrics on http://{}/metrics", metrics_->address());
  return {};
}

bool Daemon::Tick() {
  registry_->ExpireParked();
  const std::int64_t now = clock_.NowNs();
  if (acceptor_->connection_count() > 0) idle_since_ns_ = now;
  const std::int64_t idle_ns = now - idle_since_ns_;
  const bool idle = config_.exit_when_idle_s > 0 &&
                    idle_ns >= static_cast<std::int64_t>(config_.exit_when_idle_s) * 1'000 *
                                   kNsPerMs;
  return drain_requested_ || idle;
}

void Daemon::RequestDrain() {
  drain_requested_ = true;
  const std::uint64_t one = 1;
  // Without a wake-up the next tick sees it.
  if (wake_fd_.valid()) static_cast<void>(!write(wake_fd_.get(), &one, sizeof(one)));
}

void Daemon::Stop() {
  if (stopped_) return;
  stopped_ = true;
  stopping_ = true;
  if (acceptor_) acceptor_->StopAccepting();
  const Error leaving(ErrorCode::kUnavailable, "the daemon is shutting down");
  for (const auto& dataset : datasets_) dataset->AbandonCatalogWaiters(leaving);
  if (server_) {
    data_service_->Drain();
    if (!data_service_->WaitDrained(std::chrono::milliseconds(limits::kDrainDeadlineMs))) {
      spdlog::warn("readers did not take their last messages in {} ms", limits::kDrainDeadlineMs);
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
  // Readers first: what they bring wakes batches, which the executor then drops.
  stager_.reset();
  executor_.reset();
  scrubber_.reset();
  spdlog::info("forebayd stopped");
}

stage::Dataset* Daemon::FindDataset(const std::string& name) {
  for (const auto& dataset : datasets_) {
    if (dataset->name() == name) return dataset.get();
  }
  return nullptr;
}

std::vector<std::string> Daemon::DatasetNames() const {
  std::vector<std::string> names;
  for (const auto& dataset : datasets_) names.push_back(dataset->name());
  return names;
}

std::vector<stage::Dataset*> Daemon::FindDatasets(const std::vector<std::string>& names,
                                                  std::string& unknown) {
  std::vector<stage::Dataset*> found;
  for (const std::string& name : names) {
    stage::Dataset* dataset = FindDataset(name);
    if (dataset == nullptr) {
      unknown = name.empty() ? "(no name)" : name;
      return {};
    }
    found.push_back(dataset);
  }
  if (names.empty()) {
    for (const auto& dataset : datasets_) found.push_back(dataset.get());
  }
  return found;
}

void Daemon::StageNow(stage::Dataset& dataset, bool rebuild) {
  stager_->Stage(dataset, rebuild);
}

}  // namespace forebay::daemon
