// Opens the rooms on the path of a byte, from the memory of the tiers to the streams, as the
// configuration says. Daemon::Open calls these functions in an order in which each room finds those
// that it uses. A failure leaves what was opened before to the destructor of Daemon.
#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/dataset_config.h"
#include "server/daemon/config/tier_config.h"
#include "server/daemon/daemon.h"
#include "server/io/log.h"
#include "server/tier/capacity.h"

namespace forebay::daemon {
namespace {

// How much memory is populated before it is used: enough for a first batch of samples of 100 KB
// with its prefetch, and for the extent that is being staged and the next one.
constexpr std::uint64_t kAheadBytes = 64 * limits::kMiB;
constexpr std::size_t kWorkerDepth = 32;  // SSD reads in flight per worker
constexpr std::uint32_t kResolverThreads = 4;

}  // namespace

plan::TierSpace Daemon::TierBytes() const {
  return {.ram_bytes = arena_->capacity_bytes(),
          .ssd_bytes = store_ ? store_->capacity_bytes() : std::uint64_t{0}};
}

Status Daemon::OpenMemory() {
  FOREBAY_ASSIGN(tier::RamArena::Options ram, RamArenaOptions(config_));
  ram.first_region = RegionId(0);
  ram.populate_ahead_bytes = kAheadBytes;
  FOREBAY_ASSIGN(arena_, tier::RamArena::Create(ram));
  future_ = std::make_unique<stream::FutureUse>(arena_->memory_signal());
  FOREBAY_ASSIGN(tier::RamArena::Options slots, SlotArenaOptions(config_));
  // Slots get region ids after those of the arena: a client tells all regions apart by id. Slots
  // are taken from the lowest address, which reuses pages that exist already.
  slots.first_region = RegionId(static_cast<std::uint32_t>(arena_->regions().size()));
  slots.lowest_first = true;
  slots.populate_ahead_bytes = kAheadBytes;
  slots.populate_at_start = true;
  FOREBAY_ASSIGN(slots_, tier::RamArena::Create(slots));
  LogReservedPages();
  return {};
}

// Says so where the site has reserved pages for us, but too few: what is missing lies in others.
void Daemon::LogReservedPages() const {
  const bool may_use = ConfiguredHugePages(config_) == tier::HugePageUse::kAuto;
  if (!may_use || tier::ReservedHugePages() == 0) return;
  std::uint64_t bytes = 0;
  std::uint64_t reserved_bytes = 0;
  for (const tier::RamArena* arena : {arena_.get(), slots_.get()}) {
    for (const tier::SharedRegion& region : arena->regions()) bytes += region.bytes().size();
    reserved_bytes += arena->page_counts().reserved_bytes;
  }
  log::Info("{} of {} bytes of shared memory lie in reserved huge pages{}", reserved_bytes, bytes,
            reserved_bytes == bytes ? "" : "; for the rest too few are free (vm.nr_hugepages)");
}

Status Daemon::OpenSsd() {
  if (config_.ssd_directory.empty()) return {};
  // Through backend_ and not gfs_backend_: an error of a local device is not transient.
  FOREBAY_ASSIGN(ssd_directory_, backend_->OpenDirectory(config_.ssd_directory));
  FOREBAY_ASSIGN(const std::uint64_t capacity_bytes, SsdCapacity(config_, *ssd_directory_));
  FOREBAY_ASSIGN(store_, tier::SegmentStore::Open(
                             *backend_, *ssd_directory_,
                             {.capacity_bytes = capacity_bytes, .direct = config_.ssd_direct}));
  const tier::SegmentStore::Recovery found = store_->recovery();
  // An empty directory, as at the first start, is not worth a line.
  if (found.segments + found.dropped_records + found.removed_files > 0) {
    log::Info("SSD tier {}: recovered {} segments, dropped {} records without a file or damaged, "
              "removed {} leftover files",
              config_.ssd_directory, found.segments, found.dropped_records, found.removed_files);
  }
  return {};
}

// Everything that lies on the GFS is opened through gfs_backend_, which repeats failed calls and
// notices calls that are not answered.
Status Daemon::OpenDatasets() {
  cache_ = tier::ExtentCache::Create(
      *arena_, store_.get(), {.clock = &clock_, .evictions = &evictions_},
      [this](const tier::ExtentKey& key, std::uint64_t exact_from) {
        return future_->NextUse(key, exact_from);
      });
  patience_ = std::make_unique<stage::GfsPatience>(stage::PatienceOptions{
      .retry_for_ms = static_cast<std::int64_t>(config_.stage_retry_for_s) * 1000,
      .retry_max_interval_ms =
          static_cast<std::int64_t>(config_.stage_retry_max_interval_s) * 1000});
  gfs_calls_ = std::make_unique<stage::GfsCalls>(
      static_cast<std::int64_t>(config_.stage_hung_after_s) * 1000, clock_);
  gfs_backend_ = std::make_unique<stage::PatientBackend>(*backend_, *patience_, *gfs_calls_,
                                                         gfs_throttle_);
  const plan::TierPlan tiers = PlanTiers(config_, TierBytes());
  // Opening a root fails if its path is wrong, which is found out here and not at the first use.
  for (stage::DatasetOptions options : config_.datasets) {
    options.tiers = tiers;
    // Only the root directory is opened. Staging starts when the daemon is complete.
    FOREBAY_ASSIGN(auto dataset, OpenDataset(options));
    datasets_.Add(std::move(dataset));
  }
  return {};
}

// Blocks until the other nodes of the job have come.
Status Daemon::OpenNodes(int stop_fd) {
  const plan::TierSpace tiers = TierBytes();
  remote_data_ = std::make_unique<stream::RemoteDataService>();
  FOREBAY_ASSIGN(nodes_, JobNodes::Join(std::move(launch_),
                                        {.config = config_,
                                         .backend = *backend_,
                                         .clock = clock_,
                                         .capacity_bytes = tiers.ram_bytes + tiers.ssd_bytes,
                                         .nonce = generation_,
                                         .socket_directory =
                                             std::filesystem::path(socket_path_).parent_path(),
                                         .stop_fd = stop_fd,
                                         .wake = [this] { WakeMainThread(); },
                                         .clients = remote_data_.get()}));
  return OpenCaps();
}

// The caps of the job count from here on. Before, only the roots of the data sets were opened.
Status Daemon::OpenCaps() {
  FOREBAY_ASSIGN(gfs_caps_, GfsCaps::Of(config_));
  const plan::Membership& nodes = nodes_->membership();
  FOREBAY_TRY(gfs_caps_.CheckNodeCount(nodes.nodes().size()));
  gfs_throttle_.Begin({.caps = gfs_caps_.rates,
                       .requests = gfs_caps_.requests,
                       .node_requests_max = config_.stage_requests,
                       .node_count = static_cast<std::uint32_t>(nodes.nodes().size()),
                       .self = nodes.self(),
                       .has_returned = nodes_->may_have_returned()});
  if (nodes_->shares() != nullptr && gfs_caps_.has_any()) {
    share_borrower_.emplace(gfs_throttle_, *nodes_->shares(), nodes, clock_);
  }
  return {};
}

// Wires stage and fetch.
Status Daemon::OpenStager() {
  const plan::TierPlan tiers = PlanTiers(config_, TierBytes());
  const auto request = ParseByteCount(config_.stage_request, kRequestBounds);
  if (!request.has_value()) return request.error().WithContext("stage.request");
  stage::StagerOptions options;
  options.readers = static_cast<std::uint32_t>(config_.stage_readers);
  const plan::Membership& members = nodes_->membership();
  const auto node_count = static_cast<std::uint32_t>(members.nodes().size());
  options.requests = static_cast<std::uint32_t>(config_.stage_requests);
  options.has_request_cap = gfs_caps_.requests > 0;
  options.stat_batch_paths = gfs_caps_.StatBatchPaths(node_count);
  options.request_bytes = gfs_caps_.RequestBytes(*request, node_count);
  options.hung_after_ms = static_cast<std::int64_t>(config_.stage_hung_after_s) * 1000;
  options.ram_home_bytes = tiers.ram.HomeBytes();
  options.ram_working_bytes = tiers.ram.WorkingBytes();
  // Empty: catalogs are not saved.
  options.catalog_path = config_.state_dir;
  for (const auto& dataset : config_.datasets) {
    options.datasets.push_back(tier::DatasetHash(dataset.source.name));
  }
  FOREBAY_ASSIGN(stager_, stage::Stager::Create(
                              options, {.backend = *gfs_backend_,
                                        .catalogs = catalog_directory_.get(),
                                        .arena = *arena_,
                                        .store = store_.get(),
                                        .cache = *cache_,
                                        .clock = clock_,
                                        .patience = patience_.get(),
                                        .calls = gfs_calls_.get(),
                                        .throttle = &gfs_throttle_,
                                        .next_use = [this](const tier::ExtentKey& key,
                                                           std::uint64_t exact_from) {
                                          return future_->NextUse(key, exact_from);
                                        },
                                        .upcoming =
                                            config_.stage_read_ahead ? future_.get() : nullptr,
                                        .nodes = nodes_->extents() != nullptr
                                                     ? &nodes_->membership()
                                                     : nullptr,
                                        .peers = nodes_->extents(),
                                        .keepers = nodes_->keepers(),
                                        .peer_parts = nodes_->catalog_parts(),
                                        .peer_stats = nodes_->object_stats()}));
  if (config_.stage_read_ahead) {
    future_->SetReadAhead([stager = stager_.get()] { stager->LookAhead(); });
  }
  fetch::FetcherOptions pins =
      fetch::FetcherOptions::For(tiers.ram.HomeBytes(), nodes_->extents() != nullptr);
  pins.clock = &clock_;
  fetcher_ = std::make_unique<fetch::Fetcher>(*cache_, *stager_, nodes_->membership(), pins);
  return {};
}

Result<std::unique_ptr<stage::Dataset>> Daemon::OpenDataset(
    const stage::DatasetOptions& options) {
  auto root = gfs_backend_->OpenGfsDirectory(options.root_path);
  if (!root.has_value()) {
    return root.error().WithContext(
        fmt::format("data set '{}': path {}", options.source.name, options.root_path));
  }
  return std::make_unique<stage::Dataset>(options, *gfs_backend_, std::move(*root));
}

Status Daemon::OpenScrubber() {
  if (!config_.scrub_enabled) return {};
  // Checked when the key was set; parsed here for its value.
  const auto rate = ParseByteCount(config_.scrub_bytes_per_second, kScrubBounds);
  if (!rate.has_value()) return rate.error().WithContext("tier.scrub.bytes_per_second");
  FOREBAY_ASSIGN(scrubber_, BackgroundScrubber::Start(
                                {.cache = *cache_,
                                 .backend = *backend_,
                                 .clock = clock_,
                                 .pieces_of =
                                     [this](const tier::ExtentKey& key,
                                            std::vector<catalog::Range>& pieces) {
                                       // Listed again for each extent, because a rebuild adds data
                                       // sets.
                                       return PiecesOfDatasets(datasets_.All())(key, pieces);
                                     },
                                 .decoded = decoded_.get()},
                                *rate));
  return {};
}

std::uint32_t Daemon::WorkerCount() const {
  if (config_.workers != 0) return static_cast<std::uint32_t>(config_.workers);
  // A worker's reads from SSD end before its batch does. A second worker keeps the device busy
  // until then, and uses no processor while it waits.
  return std::max(store_ ? 2U : 1U, std::thread::hardware_concurrency() / 2);
}

Status Daemon::OpenStreams() {
  // The workers read samples of extents on no tier from the GFS, so they use its back end.
  FOREBAY_ASSIGN(executor_,
                 io::ThreadExecutor::Create(*gfs_backend_, WorkerCount(), kWorkerDepth));
  // Apart from the workers: where the GFS does not answer for a split file, only openings that need
  // such a file wait.
  FOREBAY_ASSIGN(resolvers_,
                 io::ThreadExecutor::Create(*backend_, kResolverThreads, /*queue_depth=*/1));
  // A share of the RAM tier: extents that views keep there cannot make way for others.
  const auto pin = tier::ParseCapacity(config_.view_pin_capacity, arena_->capacity_bytes());
  if (!pin.has_value()) return pin.error().WithContext("stream.view_pin_capacity");
  const auto decoded = tier::ParseCapacity(config_.decode_capacity, tier::MemoryLimitBytes());
  if (!decoded.has_value()) return decoded.error().WithContext("decode.capacity");
  decoded_ = std::make_unique<fetch::DecodedCache>(
      *decoded,
      [this](const fetch::UnitSamples& samples) { return future_->NextUse(samples); });
  if (nodes_->rows() != nullptr) {
    local_rows_ = std::make_unique<fetch::LocalRows>(
        fetch::LocalRowsParts{.stager = *stager_, .fetcher = *fetcher_, .decoded = *decoded_,
                              .executor = *executor_, .clock = clock_,
                              .has_gfs_waiters = [this] { return gfs_throttle_.HasWaiters(); }});
    own_rows_ = std::make_unique<fetch::OwnRows>(*local_rows_, clock_);
    router_ = std::make_unique<fetch::RowRouter>(*nodes_->rows(), *own_rows_,
                                                 nodes_->membership(), clock_);
  }
  registry_ = std::make_unique<stream::StreamRegistry>(
      stream::RegistryOptions{
          .batches = {.has_ssd = store_ != nullptr, .view_pin_bytes = *pin}},
      stream::SchedulerParts{.fetcher = *fetcher_,
                             .decoded = *decoded_,
                             .executor = *executor_,
                             .slots = *slots_,
                             .clock = clock_,
                             .rows = router_.get()},
      *future_);
  return {};
}

// Answers the other nodes of the job from now on.
Status Daemon::ServeNodes() {
  if (nodes_->rows() == nullptr) return {};
  local_extents_ = std::make_unique<stage::LocalExtents>(
      *cache_, *stager_, clock_, catalog::BuildScratch{.directory = config_.state_dir});
  local_first_reads_ =
      std::make_unique<stage::LocalFirstReads>(nodes_->membership().self(), *stager_);
  hand_over_ =
      std::make_unique<stage::HandOver>(*stager_, [this] { return datasets_.Served(); });
  nodes_->SetTakeOver([this](bool begins) {
    if (begins) hand_over_->Begin();
    return hand_over_->Look();
  });
  nodes_->SetHasStaged([this] { return hand_over_->HasStaged(); });
  nodes_->YieldWhileSlow([this] { return gfs_calls_->pace(); },
                         [this] {
                           own_rows_->AskElsewhere();
                           registry_->ExpireAwaiting(clock_.NowNs());
                         });
  FOREBAY_TRY(nodes_->Serve({.extents = *local_extents_,
                             .rows = *local_rows_,
                             .first_reads = *local_first_reads_,
                             .find_dataset = [this](std::uint64_t hash) {
                               return datasets_.FindByHash(hash);
                             },
                             .backend = *backend_,
                             .note_place =
                                 [this](const stage::Dataset& dataset,
                                        const fetch::ReaderPlace& place) {
                                   future_->Note(dataset.hash(), place);
                                 },
                             .member = {.report = [this] { return ReportToNodes(); },
                                        .throttle = &gfs_throttle_}}));
  return nodes_->AwaitNodes();
}

}  // namespace forebay::daemon
