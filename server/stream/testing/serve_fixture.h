// ServeFixture: a daemon's rooms from the GFS to a session's sink, without gRPC, on any I/O back
// end. Part of forebay::stream_testing, never of a production target.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/order_spec.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/local_rows.h"
#include "server/fetch/own_rows.h"
#include "server/fetch/row_router.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/io/testing/memory_backend.h"
#include "server/plan/membership.h"
#include "server/plan/placement.h"
#include "server/stage/gfs/patient_backend.h"
#include "server/stage/stager.h"
#include "server/stream/stream_registry.h"
#include "server/tier/extent_cache.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::stream {

// Keeps what a session says, with the payload copied out, so that a test can wait and compare.
class CollectingSink final : public BatchSink {
 public:
  struct Taken {
    std::uint64_t id = 0;
    BatchName name;
    std::vector<std::uint64_t> sample_ids;
    std::uint32_t padded = 0;
    std::vector<std::string> payload;  // per sample: field 0's bytes
    // [field][sample], field 0 included; constants in decimal.
    std::vector<std::vector<std::string>> fields;
    DecodeCounts decode;
    std::uint64_t payload_bytes = 0;
    bool views = false;
  };
  // `regions` translate spans to memory: arena regions, then slot regions.
  explicit CollectingSink(std::vector<std::span<std::byte>> regions)
      : regions_(std::move(regions)) {}

  void Deliver(std::span<const AnsweredBatch> batches) override;
  void Closed() override { closed_ = true; }
  bool is_closed() const { return closed_; }

  // Blocks until `count` batches and errors together have come; false after 20 seconds.
  bool WaitFor(std::size_t count);
  std::vector<Taken> batches() const;
  // The same, and forgets them.
  std::vector<Taken> TakeBatches();
  std::vector<Error> errors() const;
  // The names of the batches that failed, in the order of errors().
  std::vector<BatchName> failed() const;

 private:
  std::string Bytes(const WireSpan& span) const;
  std::vector<std::string> Values(const AssembledField& field, std::size_t samples) const;

  const std::vector<std::span<std::byte>> regions_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::atomic<bool> closed_ = false;
  std::vector<Taken> batches_;
  std::vector<Error> errors_;
  std::vector<BatchName> failed_;
};

struct ServeOptions {
  std::uint64_t ram_bytes = 8 << 20;
  std::uint64_t slot_bytes = 4 << 20;
  std::uint64_t ssd_bytes = 0;          // 0: no SSD tier
  std::uint64_t extent_bytes = 64 << 10;
  std::uint32_t readers = 2;
  std::uint32_t workers = 2;
  bool persist = false;
  std::uint64_t decoded_bytes = 1 << 20;
  std::uint64_t sent_chunk_bytes = limits::kPeerChunksHeldBytesMax;  // as in SchedulerOptions
  // Where set, the data set instead of records; its name is "data" in any case.
  std::optional<catalog::DatasetSource> source = std::nullopt;
  stage::Compression compression = stage::Compression::kOff;
  std::uint64_t view_pin_bytes = ~std::uint64_t{0};
  io::Clock* clock = nullptr;  // of the registry, borrowed; null: the real one
  std::uint64_t request_bytes = 16 << 10;
  std::uint32_t scan_depth = 8;
  bool reads_ahead = true;  // stage.read_ahead
  // How the RAM tier is divided; unset: all but a few percent is for homes, and, with an SSD tier,
  // room for two extents to work in.
  std::optional<plan::RamPlan> ram_plan = std::nullopt;
  // Unset: an error of the GFS is final at once.
  std::optional<stage::PatienceOptions> patience = std::nullopt;
  // Where catalogs and first reads are saved, borrowed; null: nowhere. Saved catalogs are mapped
  // from `catalog_path`, a directory of the machine: where `catalogs` is on another back end, the
  // test brings the files there.
  io::Directory* catalogs = nullptr;
  std::string catalog_path = "";
  std::string ssd_path = "/ssd";
  // The nodes of the job, and what asks them, all borrowed; null: a job of one node.
  plan::Membership* nodes = nullptr;
  stage::ExtentSource* extents = nullptr;
  stage::FirstReadKeepers* keepers = nullptr;
  stage::PartSource* catalog_parts = nullptr;
  stage::StatSource* object_stats = nullptr;
  fetch::RowSource* rows = nullptr;
  // False: NodeGroup sets no `rows`, so extents of other nodes are copied.
  bool takes_rows = true;
};

// One data set "data" of fixed records beneath /gfs; an SSD tier beneath ServeOptions::ssd_path on
// the same back end.
class ServeFixture {
 public:
  // The record of sample i: `record_bytes` bytes that no other sample has.
  static std::string RecordOf(std::uint64_t sample, std::size_t record_bytes);
  // A file of `count` records, for the test to put at /gfs/data.bin.
  static std::vector<std::byte> RecordFile(std::uint64_t count, std::size_t record_bytes);

  // `backend` is borrowed. Everything up to the registry, or the first error.
  static Result<std::unique_ptr<ServeFixture>> Create(io::IoBackend& backend,
                                                      std::size_t record_bytes,
                                                      const ServeOptions& options);
  ~ServeFixture();

  // Stages and waits until that has settled; the data set's error where it failed.
  Status StageAll();
  // Catalogues the data set anew, as `forebay stage --rebuild` does, up to the moment at which it
  // takes the place of the one before: dataset() is another one afterwards, where there was a
  // catalog, and the one before stays for its streams. An error where the objects cannot be
  // catalogued: dataset() is the one before. Where there was no catalog, it only begins.
  Status Rebuild();
  // A stream over all samples: global order, seed 7, one rank, drop tail, unless changed.
  struct Ask {
    std::uint32_t batch = 8;
    Delivery delivery = Delivery::kContiguous;
    std::uint32_t credits = 4;
    std::string name = "train";
    OrderMode mode = OrderMode::kGlobal;
    std::uint64_t block_samples = 16;
    std::uint64_t window_runs = 4;
    std::uint32_t canonical_nodes = 4;
    std::uint32_t exchange_millionths = 250'000;
    std::uint64_t seed = 7;
    std::uint32_t ranks = 1;
    std::uint32_t rank = 0;
    TailPolicy tail = TailPolicy::kDrop;
    std::string selection = "all";
    std::uint64_t reader = 0;
    std::uint64_t call = 0;
    std::uint32_t end_epoch = 0;
    std::int64_t pid = 0;  // of the reader's process; 0: cannot be watched
  };
  Result<std::shared_ptr<StreamSession>> Open(const Ask& ask, CollectingSink& sink,
                                              std::span<const std::uint64_t> still_held = {});
  Result<StreamRequestSpec> Request(const Ask& ask);
  std::unique_ptr<CollectingSink> MakeSink() const;

  stage::Dataset& dataset() { return *dataset_; }
  fetch::DecodedCache& decoded() { return *decoded_; }
  tier::ExtentCache& cache() { return *cache_; }
  tier::RamArena& slots() { return *slots_; }
  // Waits until no slot memory is in use, for 10 s at most: less than any request to another node
  // may take. A worker that is just asking for a batch's rows frees its memory when it has asked.
  bool AwaitFreeSlots() const;
  tier::RamArena& arena() { return *arena_; }
  tier::SegmentStore* store() { return store_.get(); }  // null: no SSD tier
  StreamRegistry& registry() { return *registry_; }
  stage::Stager& stager() { return *stager_; }
  fetch::Fetcher& fetcher() { return *fetcher_; }
  io::Executor& executor() { return *executor_; }
  fetch::RowRouter* router() { return router_.get(); }  // null: a job of one node
  fetch::LocalRows& local_rows() { return *local_rows_; }
  fetch::OwnRows& own_rows() { return *own_rows_; }
  io::Clock& clock() { return clock_; }
  io::IoBackend& backend() { return *backend_; }

 private:
  ServeFixture() = default;

  Result<std::unique_ptr<stage::Dataset>> MakeDataset(const stage::DatasetOptions& options);
  Status StartStager(const ServeOptions& options, tier::NextUse next_use);
  void MakeRowRooms(const ServeOptions& options);
  // Through which the GFS is used.
  io::IoBackend& gfs_backend() { return patient_ ? *patient_ : *backend_; }

  io::SteadyClock clock_;
  io::IoBackend* backend_ = nullptr;
  stage::GfsCalls gfs_calls_{/*hung_after_ms=*/30'000, clock_};
  stage::GfsThrottle gfs_throttle_{clock_};  // without caps
  std::unique_ptr<stage::GfsPatience> patience_;    // null: an error is final at once
  std::unique_ptr<stage::PatientBackend> patient_;  // likewise
  std::unique_ptr<io::Directory> ssd_directory_;
  std::unique_ptr<tier::RamArena> arena_;
  std::unique_ptr<tier::RamArena> slots_;
  std::unique_ptr<tier::SegmentStore> store_;
  std::unique_ptr<FutureUse> future_;
  std::unique_ptr<tier::ExtentCache> cache_;
  std::unique_ptr<stage::Dataset> dataset_;
  std::vector<std::unique_ptr<stage::Dataset>> kept_;  // that were replaced, or failed to replace
  std::unique_ptr<stage::Stager> stager_;
  const plan::Membership alone_;
  std::unique_ptr<fetch::Fetcher> fetcher_;
  std::unique_ptr<fetch::DecodedCache> decoded_;
  std::unique_ptr<io::ThreadExecutor> executor_;
  std::unique_ptr<fetch::LocalRows> local_rows_;
  std::unique_ptr<fetch::OwnRows> own_rows_;
  std::unique_ptr<fetch::RowRouter> router_;  // null: a job of one node
  std::unique_ptr<StreamRegistry> registry_;
};

}  // namespace forebay::stream
