#include "server/stream/testing/serve_fixture.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::stream {

std::string CollectingSink::Bytes(const WireSpan& span) const {
  if (span.region >= regions_.size()) return {};
  const std::span<std::byte> region = regions_[span.region];
  FOREBAY_CHECK(span.offset <= region.size() && span.length <= region.size() - span.offset);
  return {reinterpret_cast<const char*>(region.data() + span.offset), span.length};
}

std::vector<std::string> CollectingSink::Values(const AssembledField& field,
                                                std::size_t samples) const {
  std::vector<std::string> values;
  for (const std::int64_t constant : field.constants) values.push_back(std::to_string(constant));
  if (field.is_tensor) {
    const std::string rows = Bytes(field.tensor);
    const std::size_t row = rows.size() / std::max<std::size_t>(1, samples);
    for (std::size_t i = 0; i < samples; ++i) values.push_back(rows.substr(i * row, row));
    return values;
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < samples && !field.spans.empty(); ++i) {
    const std::size_t count = field.span_counts.empty() ? 1 : field.span_counts[i];
    std::string bytes;
    for (std::size_t j = 0; j < count; ++j) bytes += Bytes(field.spans[next++]);
    values.push_back(std::move(bytes));
  }
  return values;
}

void CollectingSink::Deliver(std::span<const AnsweredBatch> batches) {
  std::vector<Taken> all_taken;
  for (const AnsweredBatch& answered : batches) {
    if (!answered.is_taken()) continue;
    const AssembledBatch& batch = *answered.outcome;
    Taken taken;
    taken.id = answered.id;
    taken.name = batch.name;
    taken.sample_ids = batch.sample_ids;
    taken.padded = batch.padded_count;
    taken.views = !batch.fields.front().is_tensor;
    taken.decode = batch.decode;
    taken.payload_bytes = batch.payload_bytes;
    for (const AssembledField& field : batch.fields) {
      taken.fields.push_back(Values(field, batch.sample_ids.size()));
    }
    taken.payload = taken.fields.front();
    all_taken.push_back(std::move(taken));
  }
  std::lock_guard lock(mutex_);
  std::ranges::move(all_taken, std::back_inserter(batches_));
  for (const AnsweredBatch& answered : batches) {
    if (answered.is_taken()) continue;
    errors_.push_back(answered.outcome.error());
    failed_.push_back(answered.job->name);
  }
  came_.notify_all();
}

bool CollectingSink::WaitFor(std::size_t count) {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, std::chrono::seconds(20),
                        [&] { return batches_.size() + errors_.size() >= count; });
}

std::vector<CollectingSink::Taken> CollectingSink::batches() const {
  std::lock_guard lock(mutex_);
  return batches_;
}

std::vector<CollectingSink::Taken> CollectingSink::TakeBatches() {
  std::lock_guard lock(mutex_);
  return std::exchange(batches_, {});
}

std::vector<Error> CollectingSink::errors() const {
  std::lock_guard lock(mutex_);
  return errors_;
}

std::vector<BatchName> CollectingSink::failed() const {
  std::lock_guard lock(mutex_);
  return failed_;
}

bool ServeFixture::AwaitFreeSlots() const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (slots_->used_bytes() > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string ServeFixture::RecordOf(std::uint64_t sample, std::size_t record_bytes) {
  std::string record(record_bytes, '\0');
  std::uint64_t state = sample * 0x9E3779B97F4A7C15ULL + 1;
  for (std::size_t i = 0; i < record_bytes; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    record[i] = static_cast<char>(state & 0xFF);
  }
  std::memcpy(record.data(), &sample, std::min(record_bytes, sizeof(sample)));
  return record;
}

std::vector<std::byte> ServeFixture::RecordFile(std::uint64_t count, std::size_t record_bytes) {
  std::vector<std::byte> bytes;
  bytes.reserve(count * record_bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string record = RecordOf(i, record_bytes);
    const auto raw = std::as_bytes(std::span(record.data(), record.size()));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  return bytes;
}

Result<std::unique_ptr<stage::Dataset>> ServeFixture::MakeDataset(
    const stage::DatasetOptions& options) {
  std::unique_ptr<io::Directory> root;
  if (patient_) {
    FOREBAY_ASSIGN(root, patient_->OpenGfsDirectory("/gfs"));
  } else {
    FOREBAY_ASSIGN(root, backend_->OpenDirectory("/gfs"));
  }
  return std::make_unique<stage::Dataset>(options, gfs_backend(), std::move(root));
}

Status ServeFixture::StartStager(const ServeOptions& options, tier::NextUse next_use) {
  stage::StagerOptions staging;
  staging.readers = options.readers;
  staging.request_bytes = options.request_bytes;
  staging.scan_depth = options.scan_depth;
  staging.catalog_path = options.catalog_path;
  if (options.ram_plan) {
    staging.ram_working_bytes = options.ram_plan->WorkingBytes();
    staging.ram_home_bytes = options.ram_plan->HomeBytes();
  } else {
    staging.ram_working_bytes = options.ssd_bytes > 0 ? 2 * options.extent_bytes : 0;
    staging.ram_home_bytes = options.ram_bytes / 1000 * 940 - staging.ram_working_bytes;
  }
  FOREBAY_ASSIGN(stager_, stage::Stager::Create(staging, {.backend = gfs_backend(),
                                                          .catalogs = options.catalogs,
                                                          .arena = *arena_,
                                                          .store = store_.get(),
                                                          .cache = *cache_,
                                                          .clock = clock_,
                                                          .patience = patience_.get(),
                                                          .next_use = std::move(next_use),
                                                          .upcoming = options.reads_ahead
                                                                          ? future_.get()
                                                                          : nullptr,
                                                          .nodes = options.nodes,
                                                          .peers = options.extents,
                                                          .keepers = options.keepers,
                                                          .peer_parts = options.catalog_parts,
                                                          .peer_stats = options.object_stats}));
  if (options.reads_ahead) future_->SetReadAhead([stager = stager_.get()] { stager->LookAhead(); });
  return {};
}

void ServeFixture::MakeRowRooms(const ServeOptions& options) {
  io::Clock& clock = options.clock != nullptr ? *options.clock : clock_;
  local_rows_ = std::make_unique<fetch::LocalRows>(
      fetch::LocalRowsParts{.stager = *stager_, .fetcher = *fetcher_, .decoded = *decoded_,
                            .executor = *executor_, .clock = clock_});
  own_rows_ = std::make_unique<fetch::OwnRows>(*local_rows_, clock);
  if (options.rows == nullptr) return;
  router_ = std::make_unique<fetch::RowRouter>(*options.rows, *own_rows_, *options.nodes, clock);
}

Result<std::unique_ptr<ServeFixture>> ServeFixture::Create(io::IoBackend& backend,
                                                           std::size_t record_bytes,
                                                           const ServeOptions& options) {
  std::unique_ptr<ServeFixture> made(new ServeFixture());
  ServeFixture& self = *made;
  self.backend_ = &backend;
  if (options.patience) {
    self.patience_ = std::make_unique<stage::GfsPatience>(*options.patience);
    self.patient_ = std::make_unique<stage::PatientBackend>(
        backend, *self.patience_, self.gfs_calls_, self.gfs_throttle_);
  }
  FOREBAY_ASSIGN(self.arena_, tier::RamArena::Create({.capacity_bytes = options.ram_bytes,
                                                      .region_bytes = 1 << 30,
                                                      .first_region = RegionId(0)}));
  self.future_ = std::make_unique<FutureUse>(self.arena_->memory_signal());
  FOREBAY_ASSIGN(self.slots_,
                 tier::RamArena::Create({.capacity_bytes = options.slot_bytes,
                                         .region_bytes = 1 << 30,
                                         .first_region = RegionId(static_cast<std::uint32_t>(
                                             self.arena_->regions().size())),
                                         .lowest_first = true}));
  if (options.ssd_bytes > 0) {
    FOREBAY_ASSIGN(self.ssd_directory_, backend.OpenDirectory(options.ssd_path));
    FOREBAY_ASSIGN(self.store_, tier::SegmentStore::Open(
                                    backend, *self.ssd_directory_,
                                    {.capacity_bytes = options.ssd_bytes, .direct = true}));
  }
  auto next_use = [raw = made.get()](const tier::ExtentKey& key, std::uint64_t exact_from) {
    return raw->future_->NextUse(key, exact_from);
  };
  self.cache_ = tier::ExtentCache::Create(*self.arena_, self.store_.get(), {}, next_use);
  stage::DatasetOptions dataset;
  if (options.source) {
    dataset.source = *options.source;
  } else {
    dataset.source.format = catalog::Format::kRaw;
    dataset.source.settings.SetTexts("files", {"x=data.bin"});
    dataset.source.settings.SetNumbers("shape", {record_bytes});
  }
  dataset.source.name = "data";
  dataset.source.extent_bytes = options.extent_bytes;
  dataset.persist = options.persist;
  dataset.group_bytes = 1;  // so that nodes share a small data set, extent by extent
  dataset.compression = options.compression;
  FOREBAY_ASSIGN(self.dataset_, self.MakeDataset(dataset));
  FOREBAY_TRY(self.StartStager(options, next_use));
  // As the daemon does.
  const std::uint64_t home_bytes =
      options.ram_plan ? options.ram_plan->HomeBytes() : options.ram_bytes / 1000 * 940;
  self.fetcher_ = std::make_unique<fetch::Fetcher>(
      *self.cache_, *self.stager_, options.nodes != nullptr ? *options.nodes : self.alone_,
      fetch::FetcherOptions::For(home_bytes, options.nodes != nullptr));
  self.decoded_ = std::make_unique<fetch::DecodedCache>(
      options.decoded_bytes, [raw = made.get()](const fetch::UnitSamples& samples) {
        return raw->future_->NextUse(samples);
      });
  FOREBAY_ASSIGN(self.executor_,
                 io::ThreadExecutor::Create(self.gfs_backend(), options.workers, 16));
  self.MakeRowRooms(options);
  self.registry_ = std::make_unique<StreamRegistry>(
      RegistryOptions{.batches = {.has_ssd = options.ssd_bytes > 0,
                                  .view_pin_bytes = options.view_pin_bytes,
                                  .sent_chunk_bytes = options.sent_chunk_bytes}},
      SchedulerParts{.fetcher = *self.fetcher_,
                     .decoded = *self.decoded_,
                     .executor = *self.executor_,
                     .slots = *self.slots_,
                     .clock = options.clock != nullptr ? *options.clock : self.clock_,
                     .rows = self.router_.get()},
      *self.future_);
  return made;
}

// As the daemon ends: tasks of the executor use the stager, and the stager's callbacks post tasks.
ServeFixture::~ServeFixture() {
  if (stager_) stager_->BeginStop();
  if (executor_) {
    executor_->BeginStop();
    executor_->AwaitStopped(std::chrono::seconds(60));
  }
  stager_.reset();
  executor_.reset();
}

Status ServeFixture::StageAll() {
  stager_->Stage(*dataset_);
  std::mutex mutex;
  std::condition_variable told;
  for (;;) {
    const stage::DatasetProgress progress = dataset_->progress();
    if (progress.state == stage::DatasetState::kStaged) return {};
    if (progress.state == stage::DatasetState::kFailed) {
      return Error(ErrorCode::kDataLoss, progress.error);
    }
    // Progress is polled, as an admin client polls it; nothing is decided by the pause.
    std::unique_lock lock(mutex);
    told.wait_for(lock, std::chrono::milliseconds(1));
  }
}

Status ServeFixture::Rebuild() {
  if (dataset_->catalog() == nullptr) {
    stager_->Stage(*dataset_, /*rebuild=*/true);
    return {};
  }
  FOREBAY_ASSIGN(auto made, MakeDataset(dataset_->options()));
  kept_.push_back(std::move(made));
  const stage::Dataset& successor = *kept_.back();
  std::atomic<bool> has_taken_over = false;
  stager_->Replace(*dataset_, *kept_.back(), [&] {
    decoded_->Forget(dataset_->hash());
    has_taken_over = true;
  });
  std::mutex mutex;
  std::condition_variable pause;
  while (!has_taken_over) {
    const stage::DatasetProgress progress = successor.progress();
    if (progress.state == stage::DatasetState::kFailed && !has_taken_over) {
      return Error(ErrorCode::kDataLoss, progress.error);
    }
    std::unique_lock lock(mutex);
    pause.wait_for(lock, std::chrono::microseconds(100));
  }
  std::swap(dataset_, kept_.back());
  return {};
}

Result<StreamRequestSpec> ServeFixture::Request(const Ask& ask) {
  const auto catalog = dataset_->catalog();
  if (!catalog) return Error(ErrorCode::kFailedPrecondition, "not catalogued");
  FOREBAY_ASSIGN(const auto selection, ResolveSelection(*dataset_, *catalog, ask.selection));
  OrderSpec order;
  order.seed = ask.seed;
  order.sample_count = selection->size();
  order.selection_fingerprint = selection->fingerprint();
  order.tail = ask.tail;
  order.shape.mode = ask.mode;
  if (ask.mode == OrderMode::kBlock) {
    order.shape.block_samples = ask.block_samples;
    order.shape.window_runs = ask.window_runs;
  } else if (ask.mode == OrderMode::kPartial) {
    order.shape.block_samples = ask.block_samples;
    order.shape.canonical_nodes = ask.canonical_nodes;
    order.shape.exchange_millionths = ask.exchange_millionths;
    order.shape.global_batch = ask.batch;
  }
  const auto encoded = order.Encode();
  return StreamRequestSpec{.dataset = "data",
                           .stream_name = ask.name,
                           .selection = ask.selection,
                           .order_spec = {encoded.begin(), encoded.end()},
                           .global_batch = ask.batch,
                           .ranks = ask.ranks,
                           .rank = ask.rank,
                           .delivery = static_cast<std::uint32_t>(ask.delivery),
                           .credits = ask.credits,
                           .catalog_fingerprint = 0,
                           .inline_payload = false,
                           .reader = ask.reader,
                           .call = ask.call,
                           .end_epoch = ask.end_epoch,
                           .client = {.name = "test", .pid = ask.pid}};
}

Result<std::shared_ptr<StreamSession>> ServeFixture::Open(
    const Ask& ask, CollectingSink& sink, std::span<const std::uint64_t> still_held) {
  FOREBAY_ASSIGN(const StreamRequestSpec request, Request(ask));
  FOREBAY_ASSIGN(StreamSpec spec, ResolveStream(*dataset_, request));
  return registry_->Open(std::move(spec), &sink, still_held);
}

std::unique_ptr<CollectingSink> ServeFixture::MakeSink() const {
  std::vector<std::span<std::byte>> regions;
  for (const tier::SharedRegion& region : arena_->regions()) regions.push_back(region.bytes());
  for (const tier::SharedRegion& region : slots_->regions()) regions.push_back(region.bytes());
  return std::make_unique<CollectingSink>(std::move(regions));
}

}  // namespace forebay::stream
