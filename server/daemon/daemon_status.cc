// Fills the status message, for `forebay status` and the metrics endpoint alike. Each room counts
// for itself; nothing is counted here, so a status call costs the data path only short locks.
#include <unistd.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "server/daemon/config/tier_config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/version.h"

namespace forebay::daemon {
namespace {

void FillTier(const tier::ExtentCache::TierStats& stats, const char* name,
              v1::TierStatus& message) {
  message.set_name(name);
  message.set_capacity_bytes(stats.capacity_bytes);
  message.set_used_bytes(stats.used_bytes);
  message.set_extents(stats.extents);
  message.set_evictions(stats.evictions);
  message.set_pinned_bytes(stats.pinned_bytes);
  message.set_retired(stats.retired);
  message.set_bad_extents(stats.bad_extents);
  message.set_device_errors(stats.device_errors);
}

void FillPages(const tier::RamArena& extents, const tier::RamArena& slots,
               tier::HugePageUse huge_pages, v1::MemoryPages& message) {
  tier::PageCounts counts = extents.page_counts();
  const tier::PageCounts of_slots = slots.page_counts();
  counts.reserved_bytes += of_slots.reserved_bytes;
  counts.transparent_bytes += of_slots.transparent_bytes;
  counts.small_bytes += of_slots.small_bytes;
  // The two arenas ask the same kernel, so one refusal is as good as the other.
  if (counts.refusal_errno == 0) counts.refusal_errno = of_slots.refusal_errno;
  message.set_reserved_bytes(counts.reserved_bytes);
  message.set_transparent_bytes(counts.transparent_bytes);
  message.set_small_bytes(counts.small_bytes);
  message.set_advice(tier::SmallPagesAdvice(counts, huge_pages));
}

// `stats` are the cache's own counts, `totals` what all streams have decoded since the start.
void FillDecode(const fetch::DecodedCache::Stats& stats, const stream::DecodeCounts& totals,
                v1::DecodeStatus& message) {
  // Bytes and times are summed over streams, because the cache does not know them: a unit that is
  // decoded straight into a slot never comes to it.
  message.set_decoded_bytes(totals.bytes);
  message.set_decode_ns(totals.ns);
  message.set_capacity_bytes(stats.capacity_bytes);
  message.set_used_bytes(stats.used_bytes);
  message.set_units(stats.units);
  message.set_hits(totals.kept_units);
  message.set_shared(stats.shared);
  message.set_decoded(stats.decoded);
  message.set_evictions(stats.evictions);
}

void FillGfs(const stage::GfsFigures& figures, const stage::GfsCalls::Figures& calls,
             v1::GfsCounters& message) {
  message.set_incidents(figures.incidents);
  message.set_retries(figures.retries);
  message.set_given_up(figures.given_up);
  message.set_failing(figures.failing);
  message.set_last_error(figures.last_error);
  // Calls that are hung are no incidents: nothing has failed yet. So they come from another
  // counter.
  message.set_hung(calls.hung);
  message.set_hung_total(calls.hung_total);
  message.set_hung_oldest(calls.oldest);
  message.set_hung_oldest_ms(static_cast<std::uint64_t>(calls.oldest_ms));
}

void FillCap(const char* name, const stage::CapShare::Figures& figures, v1::GfsCounters& message) {
  if (figures.job_rate <= 0) return;  // there is no such cap
  v1::GfsCap& cap = *message.add_caps();
  cap.set_name(name);
  cap.set_job_rate(figures.job_rate);
  cap.set_node_rate(figures.node_rate);
  cap.set_rate(figures.rate);
  cap.set_lent(figures.lent);
  cap.set_borrowed(figures.borrowed);
  cap.set_inherited(figures.inherited);
  if (figures.inherited_from) cap.set_inherited_from(figures.inherited_from->value());
  cap.set_used_rate(figures.recent);
  cap.set_used(static_cast<std::uint64_t>(figures.used));
  cap.set_waited_s(figures.waited_s);
}

// Adds the cap on requests in flight. Its figures are numbers of requests where those of other caps
// are rates.
void FillRequestCap(const stage::RequestShare::Figures& figures,
                    std::optional<NodeRank> inherited_from, v1::GfsCounters& message) {
  FillCap("requests",
          {.job_rate = static_cast<double>(figures.job),
           .node_rate = static_cast<double>(figures.node),
           .rate = static_cast<double>(figures.now),
           .lent = static_cast<double>(figures.lent),
           .borrowed = static_cast<double>(figures.borrowed),
           .inherited = static_cast<double>(figures.inherited),
           .inherited_from = inherited_from,
           .recent = static_cast<double>(figures.recent),
           .used = static_cast<double>(figures.begun),
           .waited_s = static_cast<double>(figures.waited_ns) / 1e9},
          message);
}

void FillStream(const stream::StreamSummary& summary, v1::StreamStatus& stream) {
  stream.set_name(summary.stream_name);
  stream.set_dataset(summary.dataset);
  // A client need not give itself a name.
  stream.set_client(summary.client.name.empty() ? fmt::format("pid {}", summary.client.pid)
                                                : summary.client.name);
  stream.set_client_pid(summary.client.pid);
  stream.set_client_uid(summary.client.uid);
  stream.set_rank(summary.rank);
  stream.set_ranks(summary.ranks);
  stream.set_credits(summary.credits);
  stream.set_batches(summary.stats.batches);
  stream.set_samples(summary.stats.samples);
  stream.set_bytes(summary.stats.bytes);
  // Batches that the client has and has not released. A number that stays high names the reader
  // that keeps slot memory.
  stream.set_held(summary.stats.held);
  stream.set_cut_off(summary.is_cut_off);
  stream.set_failed(summary.stats.failed);
  stream.set_copied_views(summary.stats.copied_views);
  stream.set_hit_ram_samples(summary.stats.ram_samples);
  stream.set_hit_ssd_samples(summary.stats.ssd_samples);
  stream.set_gfs_wait_samples(summary.stats.waited_samples);
  stream.set_decoded_chunks(summary.stats.decode.chunks);
  stream.set_decoded_bytes(summary.stats.decode.bytes);
  stream.set_decode_ns(summary.stats.decode.ns);
  stream.set_kept_samples(summary.stats.decode.kept_samples);
}

// After staging has ended: counts the bytes that are on no tier, and says why. Their extents had no
// home tier, a tier refused them, or they were evicted since. What other nodes keep is not missing.
void FillUnstaged(const stage::Dataset& dataset, const catalog::Catalog& catalog,
                  const std::vector<bool>& is_resident, v1::DatasetStatus& message) {
  const std::uint64_t bytes_without_home = dataset.bytes_without_home();
  // Image bytes and not stored ones, so that staged and unstaged bytes add up to the data set's
  // size.
  std::uint64_t bytes = 0;
  std::uint64_t bytes_of_others = 0;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    if (is_resident[i]) continue;
    const bool is_remote = dataset.IsRemote(ExtentId(i));
    (is_remote ? bytes_of_others : bytes) += catalog.extent(ExtentId(i)).bytes;
  }
  message.set_other_nodes_bytes(bytes_of_others);
  // Replaces the figure of the staging pass, which does not know about later evictions.
  message.set_staged_bytes(catalog.total_bytes() - bytes - bytes_of_others);
  if (bytes == 0) return;
  message.set_state("partly staged");
  message.set_unstaged_bytes(bytes);
  message.set_unstaged_reason(
      bytes_without_home > 0
          ? fmt::format("{} bytes fit on no tier: {}; order 'block' works without that",
                        bytes_without_home, dataset.CapacityAdvice())
          : "a tier refused or evicted them (the log says which); run 'forebay stage' again");
}

// Predicts the millionths of the samples of a random order that come from this node: the part of
// the bytes that other nodes do not have to supply, because this node owns or copies them
// (docs/nodes_design.md, "Copies"). Of the data sets that are being read, or of all if none is. 0
// if none of them has a catalog.
std::uint64_t PredictedLocalMillionths(const std::vector<stage::Dataset*>& datasets,
                                       const std::vector<stream::StreamSummary>& streams) {
  double total_bytes = 0, bytes_here = 0;
  for (const stage::Dataset* dataset : datasets) {
    const auto catalog = dataset->catalog();
    const bool is_read =
        streams.empty() || std::ranges::find(streams, dataset->name(),
                                             &stream::StreamSummary::dataset) != streams.end();
    if (!catalog || !is_read) continue;
    total_bytes += static_cast<double>(catalog->total_bytes());
    bytes_here += static_cast<double>(catalog->total_bytes() - dataset->bytes_of_others());
  }
  return total_bytes > 0 ? static_cast<std::uint64_t>(1e6 * bytes_here / total_bytes) : 0;
}

}  // namespace

// Called by the admin service, for `forebay stage` five times a second. It asks the cache and the
// data set about one extent after another, so staging goes on meanwhile.
v1::DatasetStatus Daemon::StatusOf(const stage::Dataset& dataset) {
  // One copy under the data set's lock, so that its figures belong together.
  const stage::DatasetProgress progress = dataset.progress();
  v1::DatasetStatus message;
  message.set_name(dataset.name());
  message.set_state(std::string(stage::DatasetStateName(progress.state)));
  message.set_error(progress.error);
  message.set_total_bytes(progress.total_bytes);
  message.set_staged_bytes(progress.staged_bytes);
  message.set_gfs_bytes(progress.gfs_bytes);
  message.set_gfs_opens(progress.gfs_opens);
  message.set_staging_ms(progress.staging_ms);
  message.set_stored_form(progress.stored_form);
  message.set_mismatches(dataset.first_reads().mismatches());
  message.set_gfs_pieces(progress.gfs_pieces);
  message.set_gfs_piece_bytes(progress.gfs_piece_bytes);
  // Held by this reference: a rebuild may replace the catalog meanwhile.
  if (const auto catalog = dataset.catalog()) {
    message.set_format(std::string(catalog::FormatName(catalog->format())));
    message.set_catalog_fingerprint(catalog->fingerprint());
    message.set_samples(catalog->sample_count());
    message.set_objects(catalog->object_count());
    message.set_extents(catalog->extent_count());
    message.set_other_nodes_bytes(dataset.bytes_of_others());
    message.set_copied_bytes(dataset.copied_bytes());
    // An extent may have copies on both tiers, and counts once as staged.
    std::vector<bool> is_resident(catalog->extent_count(), false);
    for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
      std::uint64_t bytes = 0;
      // The cache also holds extents of other data sets, and of this one before it was rebuilt.
      for (const tier::ExtentKey& key : cache_->Resident(kind)) {
        if (key.dataset != dataset.hash()) continue;
        const std::optional<ExtentId> extent = dataset.ExtentOf(key);
        if (!extent) continue;
        bytes += dataset.StoredBytes(*extent);
        is_resident[extent->value()] = true;
      }
      kind == tier::TierKind::kRam ? message.set_ram_bytes(bytes) : message.set_ssd_bytes(bytes);
    }
    // While staging is under way, the bytes that are missing are only late.
    if (progress.state == stage::DatasetState::kStaged) {
      FillUnstaged(dataset, *catalog, is_resident, message);
    }
  }
  return message;
}

peer::NodeReport Daemon::ReportToNodes() {
  peer::NodeReport report;
  for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
    const tier::ExtentCache::TierStats stats = cache_->stats(kind);
    report.capacity_bytes += stats.capacity_bytes;
    report.used_bytes += stats.used_bytes;
  }
  for (const stage::Dataset* dataset : datasets_.All()) {
    const stage::DatasetProgress progress = dataset->progress();
    report.gfs_bytes += progress.gfs_bytes;
    report.gfs_opens += progress.gfs_opens;
  }
  // A call that has not been answered yet already takes as long as it has waited.
  const stage::GfsCalls::Pace pace = gfs_calls_->pace();
  report.gfs_call_us = static_cast<std::uint64_t>(std::max(pace.longest_ns, pace.oldest_ns) / 1000);
  report.is_yielding = nodes_->membership().YieldsFor(plan::YieldReason::kSlowGfs);
  report.is_joining = nodes_->membership().YieldsFor(plan::YieldReason::kArrives);
  const stream::SessionStats totals = registry_->totals();
  report.samples = totals.samples;
  report.other_samples = totals.other_samples;
  report.waited_samples = totals.waited_samples;
  // Until then, the others still supply what a client of a lost node reads here. A node that has
  // finished has its data service.
  report.has_finished = nodes_->has_finished() && !data_service_->has_remote_clients();
  return report;
}

v1::NodesReply Daemon::NodesNow() {
  v1::NodesReply reply;
  reply.set_is_encrypted(nodes_->is_encrypted());
  reply.set_node_connections(std::string(nodes_->connections()));
  for (const JobNodes::View& view : nodes_->Ask()) {
    v1::NodeStatus& node = *reply.add_nodes();
    node.set_rank(view.rank.value());
    node.set_name(view.name);
    node.set_address(view.address);
    node.set_weight(view.weight);
    node.set_is_self(view.is_self);
    node.set_received_bytes(view.received.received_bytes);
    if (config_.peer_transport == "mpi") {
      node.set_mpi_bytes(view.received.carried_bytes);
    } else {
      node.set_connection_bytes(view.received.carried_bytes);
    }
    node.set_busy_ns(view.received.busy_ns);
    node.set_calls(view.received.calls);
    node.set_failed_calls(view.received.failed);
    node.set_wrong_answers(view.received.wrong);
    node.set_late_calls(view.received.late);
    node.set_is_left_out(view.is_left_out);
    node.set_is_leaving(view.is_leaving);
    node.set_is_free(view.is_free);
    if (view.is_self) {
      node.set_predicted_local_millionths(
          PredictedLocalMillionths(datasets_.Served(), registry_->Summaries()));
    }
    node.set_answers(view.ping.report.has_value());
    node.set_is_unasked(view.ping.is_unasked);
    if (!view.ping.report.has_value()) {
      node.set_error(view.ping.report.error().message());
      continue;
    }
    const peer::NodeReport report = view.is_self ? ReportToNodes() : *view.ping.report;
    node.set_answer_us(static_cast<std::uint64_t>(view.ping.answer_ns / 1000));
    node.set_capacity_bytes(report.capacity_bytes);
    node.set_used_bytes(report.used_bytes);
    node.set_gfs_bytes(report.gfs_bytes);
    node.set_gfs_opens(report.gfs_opens);
    node.set_samples(report.samples);
    node.set_other_samples(report.other_samples);
    node.set_waited_samples(report.waited_samples);
    node.set_is_yielding(report.is_yielding);
    node.set_is_joining(report.is_joining);
  }
  return reply;
}

v1::StatusReply Daemon::StatusNow() {
  v1::StatusReply reply;
  reply.set_version(kVersion);
  reply.set_job_id(job_id_);
  reply.set_generation(generation_);
  // The uptime comes from the monotonic clock, so that setting the wall clock does not change it.
  reply.set_uptime_ms(static_cast<std::uint64_t>((clock_.NowNs() - started_ns_) / 1'000'000));
  reply.set_io_backend(std::string(backend_->name()));
  reply.set_pid(getpid());
  reply.set_node_connections(std::string(nodes_->connections()));
  // Null until OpenServer has made it, which is after the gRPC server.
  reply.set_clients(acceptor_ ? acceptor_->connection_count() : 0);
  reply.set_slot_bytes_capacity(slots_->capacity_bytes());
  reply.set_slot_bytes_used(slots_->used_bytes());
  // Includes streams that have ended, so that counters of the metrics never go back.
  const stream::SessionStats totals = registry_->totals();
  const fetch::DecodedCache::Stats decoded = decoded_->stats();
  // The three largest consumers of memory, all with a configured capacity.
  reply.set_memory_limit_bytes(arena_->capacity_bytes() + slots_->capacity_bytes() +
                               decoded.capacity_bytes);
  FillPages(*arena_, *slots_, ConfiguredHugePages(config_), *reply.mutable_pages());
  FillDecode(decoded, totals.decode, *reply.mutable_decode());
  v1::TierStatus& ram = *reply.add_tiers();
  FillTier(cache_->stats(tier::TierKind::kRam), "ram", ram);
  ram.set_hit_samples(totals.ram_samples);
  ram.set_hit_bytes(totals.ram_bytes);
  // A daemon without an SSD tier reports one tier only, so that no dashboard shows a full tier of 0
  // bytes.
  if (store_) {
    v1::TierStatus& ssd = *reply.add_tiers();
    FillTier(cache_->stats(tier::TierKind::kSsd), "ssd", ssd);
    ssd.set_hit_samples(totals.ssd_samples);
    ssd.set_hit_bytes(totals.ssd_bytes);
  }
  v1::ScrubStatus& scrub = *reply.mutable_scrub();
  scrub.set_enabled(scrubber_ != nullptr);
  if (scrubber_) {
    const tier::Scrubber::Counts counts = scrubber_->counts();
    scrub.set_extents(counts.extents);
    scrub.set_bytes(counts.bytes);
    scrub.set_bad_extents(counts.bad_extents);
  }
  FillGfs(patience_->figures(), gfs_calls_->figures(), *reply.mutable_gfs());
  FillCap("bytes", gfs_throttle_.figures(stage::Cap::kBytes), *reply.mutable_gfs());
  FillCap("opens", gfs_throttle_.figures(stage::Cap::kOpens), *reply.mutable_gfs());
  const stage::CapShare::Held shares = gfs_throttle_.held();
  FillRequestCap(gfs_throttle_.request_figures(),
                 shares.ward ? std::optional(shares.ward_rank) : std::nullopt,
                 *reply.mutable_gfs());
  reply.mutable_gfs()->set_is_yielding(
      nodes_->membership().YieldsFor(plan::YieldReason::kSlowGfs));
  // Each costs a walk over the keys of both tiers (StatusOf), so the cost grows with data sets
  // times extents.
  for (const stage::Dataset* dataset : datasets_.Served()) {
    *reply.add_datasets() = StatusOf(*dataset);
  }
  // Data sets that were replaced by a rebuild have read from the GFS too, so all are counted.
  for (const stage::Dataset* dataset : datasets_.All()) {
    const stage::DatasetProgress progress = dataset->progress();
    v1::GfsCounters& gfs = *reply.mutable_gfs();
    gfs.set_opens(gfs.opens() + progress.gfs_opens);
    gfs.set_reads(gfs.reads() + progress.gfs_reads);
    gfs.set_bytes(gfs.bytes() + progress.gfs_bytes);
    gfs.set_stats(gfs.stats() + progress.gfs_stats);
  }
  for (const stream::StreamSummary& summary : registry_->Summaries()) {
    FillStream(summary, *reply.add_streams());
  }
  return reply;
}

}  // namespace forebay::daemon
