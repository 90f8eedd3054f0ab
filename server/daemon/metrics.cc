// Turns a StatusReply into Prometheus metric families. The HTTP server is prometheus-cpp's Exposer;
// StatusCollector is the Collectable that it asks at every scrape. Nothing is counted here.
#include "server/daemon/metrics.h"

#include <charconv>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

namespace forebay::daemon {
namespace {

// The names and help texts below are an interface: dashboards depend on them. Counters end in
// `_total`, and sizes and times in their unit, as Prometheus recommends.
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct Label {
  std::string name;
  std::string value;
};

// Collects samples by metric name. Prometheus rejects an answer in which a family appears twice,
// and tiers, data sets and streams each add samples to the same families.
class FamilyWriter {
 public:
  void Gauge(const char* name, const char* help, std::vector<Label> labels, double value) {
    Metric(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  void Counter(const char* name, const char* help, std::vector<Label> labels, double value) {
    Metric(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
  }
  // Families keep the order in which they were first written, so two scrapes differ in values only.
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  ClientMetric& Metric(const char* name, const char* help, MetricType type,
                       std::vector<Label> labels) {
    MetricFamily* family = nullptr;
    for (MetricFamily& candidate : families_) {
      // A linear search: there are a few dozen families.
      if (candidate.name == name) family = &candidate;
    }
    // The help text and type of the first sample are those of the family.
    if (family == nullptr) {
      families_.push_back({name, help, type, {}});
      family = &families_.back();
    }
    ClientMetric& metric = family->metric.emplace_back();
    for (Label& label : labels) metric.label.push_back({label.name, label.value});
    return metric;
  }

  std::vector<MetricFamily> families_;
};

// Prometheus has only doubles: counters are exact up to 2^53.
// A daemon that serves 10 GB/s passes 2^53 bytes after ten days; beyond that a counter is rounded
// to 2 bytes.
double Number(std::uint64_t value) { return static_cast<double>(value); }

// Label "pages": "reserved" or "transparent" (2 MiB), or "small" (4 KiB).
void WritePages(const v1::MemoryPages& pages, FamilyWriter& out) {
  const char* const name = "forebay_memory_pages_bytes";
  const char* const help = "Shared memory used so far, by the kind of its pages.";
  out.Gauge(name, help, {{"pages", "reserved"}}, Number(pages.reserved_bytes()));
  out.Gauge(name, help, {{"pages", "transparent"}}, Number(pages.transparent_bytes()));
  out.Gauge(name, help, {{"pages", "small"}}, Number(pages.small_bytes()));
}

// Label "protection": as StatusReply.node_connections. A job of one node has no such series.
void WriteNodeConnections(const v1::StatusReply& status, FamilyWriter& out) {
  if (status.node_connections().empty()) return;
  out.Gauge("forebay_node_connections",
            "1 for how the connections between nodes are protected: encrypted, encrypted_but_mpi, "
            "plaintext_on_loopback, or plaintext_allowed (peer.allow_plaintext).",
            {{"protection", status.node_connections()}}, 1);
}

// Label "tier": "ram" or "ssd".
void WriteTiers(const v1::StatusReply& status, FamilyWriter& out) {
  for (const v1::TierStatus& tier : status.tiers()) {
    const std::vector<Label> labels = {{"tier", tier.name()}};
    out.Gauge("forebay_tier_capacity_bytes", "Space for extents.", labels,
              Number(tier.capacity_bytes()));
    out.Gauge("forebay_tier_used_bytes", "Taken by extents, padding included.", labels,
              Number(tier.used_bytes()));
    out.Gauge("forebay_tier_extents", "Extents held.", labels, Number(tier.extents()));
    out.Gauge("forebay_tier_retired", "1 if nothing more is written to it, after device errors.",
              labels, tier.retired() ? 1 : 0);
    // Counters start at 0 with the process. Prometheus recognises a restart by a value that falls.
    out.Counter("forebay_tier_evictions_total", "Extents evicted.", labels,
                Number(tier.evictions()));
    out.Counter("forebay_tier_bad_extents_total", "Copies found damaged and dropped.", labels,
                Number(tier.bad_extents()));
    out.Counter("forebay_tier_device_errors_total", "Calls that the device failed.", labels,
                Number(tier.device_errors()));
    out.Counter("forebay_tier_hit_samples_total", "Samples served from this tier.", labels,
                Number(tier.hit_samples()));
  }
}

void WriteScrub(const v1::ScrubStatus& scrub, FamilyWriter& out) {
  out.Counter("forebay_scrub_extents_total", "Extents looked at in the background.", {},
              Number(scrub.extents()));
  out.Counter("forebay_scrub_bytes_total", "Bytes of them.", {}, Number(scrub.bytes()));
  out.Counter("forebay_scrub_bad_extents_total", "Of them, found damaged.", {},
              Number(scrub.bad_extents()));
}

void WriteDecode(const v1::DecodeStatus& decode, FamilyWriter& out) {
  out.Gauge("forebay_decode_capacity_bytes", "Configured room for decoded chunks.", {},
            Number(decode.capacity_bytes()));
  out.Gauge("forebay_decode_used_bytes", "Taken by decoded chunks.", {},
            Number(decode.used_bytes()));
  out.Counter("forebay_decode_units_total",
              "Runs of samples decoded, again for a batch tried again.", {},
              Number(decode.decoded()));
  out.Counter("forebay_decode_hits_total", "Runs of samples found decoded.", {},
              Number(decode.hits()));
  out.Counter("forebay_decode_evictions_total", "Runs of samples dropped again.", {},
              Number(decode.evictions()));
}

void WriteDatasets(const v1::StatusReply& status, FamilyWriter& out) {
  for (const v1::DatasetStatus& dataset : status.datasets()) {
    // CheckName allows only characters in a data set's name that need no escape in a label.
    const std::vector<Label> labels = {{"dataset", dataset.name()}};
    out.Gauge("forebay_dataset_bytes", "Size of the data set, 0 while unknown.", labels,
              Number(dataset.total_bytes()));
    out.Gauge("forebay_dataset_staged_bytes", "Bytes of it that are on a tier.",
              labels, Number(dataset.staged_bytes()));
    out.Counter("forebay_dataset_gfs_read_bytes_total", "Bytes read from the GFS.", labels,
                Number(dataset.gfs_bytes()));
    out.Counter("forebay_dataset_gfs_opens_total", "Objects opened on the GFS.", labels,
                Number(dataset.gfs_opens()));
    out.Gauge("forebay_dataset_unstaged_bytes", "Bytes on no tier after staging.", labels,
              Number(dataset.unstaged_bytes()));
    out.Counter("forebay_dataset_gfs_pieces_total",
                "Pieces of extents on no tier that were read from the GFS for readers.", labels,
                Number(dataset.gfs_pieces()));
    out.Counter("forebay_dataset_mismatches_total",
                "Reads that did not match the first read of their extent.", labels,
                Number(dataset.mismatches()));
  }
}

void WriteGfs(const v1::GfsCounters& gfs, FamilyWriter& out) {
  out.Counter("forebay_gfs_incidents_total", "Times at which the GFS began to fail.", {},
              Number(gfs.incidents()));
  out.Counter("forebay_gfs_retries_total", "GFS calls that were made again.", {},
              Number(gfs.retries()));
  out.Counter("forebay_gfs_given_up_total", "GFS calls that never succeeded.", {},
              Number(gfs.given_up()));
  out.Gauge("forebay_gfs_failing", "GFS calls that are being repeated now.", {},
            Number(gfs.failing()));
  out.Counter("forebay_gfs_hung_total", "GFS calls that were not answered for stage.hung_after.",
              {}, Number(gfs.hung_total()));
  out.Gauge("forebay_gfs_hung", "GFS calls that have not been answered for that long now.", {},
            Number(gfs.hung()));
  out.Gauge("forebay_gfs_yielding",
            "1 while other nodes read in place of this one, because the GFS is slow only here.", {},
            gfs.is_yielding() ? 1 : 0);
  out.Gauge("forebay_gfs_hung_oldest_seconds", "Age of the oldest of these; status names it.", {},
            static_cast<double>(gfs.hung_oldest_ms()) / 1000);
}

// Label "cap": "bytes", "opens" or "requests". A job without caps has none of these series.
// Requests in flight are no rate, so they have families of their own.
void WriteCaps(const v1::GfsCounters& gfs, FamilyWriter& out) {
  for (const v1::GfsCap& cap : gfs.caps()) {
    const std::vector<Label> labels = {{"cap", cap.name()}};
    const std::string unit = cap.name() == "requests" ? "in_flight" : "per_second";
    const auto gauge = [&](std::string_view what, const char* help, double value) {
      out.Gauge(fmt::format("forebay_gfs_cap_{}_{}", what, unit).c_str(), help, labels, value);
    };
    gauge("job", "Cap of the whole job on its use of the GFS.", cap.job_rate());
    gauge("node", "This node's part of the cap, without loans.", cap.node_rate());
    gauge("now", "What this node may use now.", cap.rate());
    gauge("lent", "Of its part, lent to other nodes.", cap.lent());
    gauge("borrowed", "Borrowed from other nodes.", cap.borrowed());
    gauge("inherited", "Of the share of a lost node.", cap.inherited());
    out.Counter("forebay_gfs_cap_used_total", "What calls have used, each try of them.", labels,
                Number(cap.used()));
    out.Counter("forebay_gfs_cap_wait_seconds_total",
                "Time that calls have waited, in sum; of requests, in which one or more waited.",
                labels, cap.waited_s());
  }
}

// Adds up the streams that have equal labels: two programs may each read a data set as rank 0 of a
// stream "train". Prometheus refuses an answer in which a family has two samples of equal labels.
std::vector<v1::StreamStatus> SumsByLabels(const v1::StatusReply& status) {
  std::vector<v1::StreamStatus> sums;
  std::map<std::tuple<std::string, std::string, std::uint32_t>, std::size_t> places;
  for (const v1::StreamStatus& stream : status.streams()) {
    if (stream.cut_off()) continue;  // a stream that ends takes its series with it
    const auto [place, is_new] = places.try_emplace(
        {stream.name(), stream.dataset(), stream.rank()}, sums.size());
    if (is_new) {
      sums.push_back(stream);
      continue;
    }
    v1::StreamStatus& sum = sums[place->second];
    sum.set_batches(sum.batches() + stream.batches());
    sum.set_samples(sum.samples() + stream.samples());
    sum.set_bytes(sum.bytes() + stream.bytes());
    sum.set_gfs_wait_samples(sum.gfs_wait_samples() + stream.gfs_wait_samples());
    sum.set_decoded_bytes(sum.decoded_bytes() + stream.decoded_bytes());
    sum.set_decode_ns(sum.decode_ns() + stream.decode_ns());
  }
  return sums;
}

void WriteStreams(const v1::StatusReply& status, FamilyWriter& out) {
  for (const v1::StreamStatus& stream : SumsByLabels(status)) {
    // A stream's name comes from its client; the library escapes it. The rank tells the streams of
    // one job apart.
    // A stream that ends takes its series with it. The totals of all streams are those of the
    // tiers.
    const std::vector<Label> labels = {{"stream", stream.name()},
                                       {"dataset", stream.dataset()},
                                       {"rank", std::to_string(stream.rank())}};
    out.Counter("forebay_stream_batches_total", "Minibatches delivered.", labels,
                Number(stream.batches()));
    out.Counter("forebay_stream_samples_total", "Samples delivered.", labels,
                Number(stream.samples()));
    out.Counter("forebay_stream_bytes_total", "Payload bytes delivered.", labels,
                Number(stream.bytes()));
    out.Counter("forebay_stream_gfs_wait_samples_total", "Samples that waited for the GFS.",
                labels, Number(stream.gfs_wait_samples()));
    out.Counter("forebay_stream_decoded_bytes_total", "Bytes decoded for it from packs.", labels,
                Number(stream.decoded_bytes()));
    out.Counter("forebay_stream_decode_seconds_total", "Time of its threads spent decoding.",
                // Prometheus measures time in seconds.
                labels, Number(stream.decode_ns()) / 1e9);
  }
}

// Called on a thread of the HTTP server. The snapshot is taken at each scrape, so nothing runs
// between scrapes.
class StatusCollector final : public prometheus::Collectable {
 public:
  explicit StatusCollector(std::function<v1::StatusReply()> snapshot)
      : snapshot_(std::move(snapshot)) {}

  std::vector<MetricFamily> Collect() const override {
    const v1::StatusReply status = snapshot_();
    FamilyWriter out;
    out.Gauge("forebay_info", "1; labels say what runs.",
              {{"version", status.version()},
               {"job_id", status.job_id()},
               {"io_backend", status.io_backend()}},
              1);
    out.Gauge("forebay_uptime_seconds", "Since the daemon started.", {},
              Number(status.uptime_ms()) / 1000);
    out.Gauge("forebay_clients", "Connections.", {}, status.clients());
    out.Gauge("forebay_slot_used_bytes", "Slot memory in use.", {},
              Number(status.slot_bytes_used()));
    WritePages(status.pages(), out);
    WriteNodeConnections(status, out);
    WriteTiers(status, out);
    WriteScrub(status.scrub(), out);
    WriteDecode(status.decode(), out);
    WriteGfs(status.gfs(), out);
    WriteCaps(status.gfs(), out);
    WriteDatasets(status, out);
    WriteStreams(status, out);
    return out.Take();
  }

 private:
  const std::function<v1::StatusReply()> snapshot_;
};

}  // namespace

// Hidden from the header, so that only this file includes prometheus-cpp. The exposer keeps a weak
// reference to the collector, which has to outlive it.
struct MetricsEndpoint::Parts {
  std::shared_ptr<StatusCollector> collector;
  std::unique_ptr<prometheus::Exposer> exposer;
};

MetricsEndpoint::MetricsEndpoint(std::string address, std::unique_ptr<Parts> parts)
    : address_(std::move(address)), parts_(std::move(parts)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const std::string& listen, std::function<v1::StatusReply()> snapshot) {
  const std::size_t colon = listen.rfind(':');
  // The last colon separates the port, because an IPv6 address has colons of its own.
  const std::string host = listen.substr(0, colon);
  // The port is parsed strictly, because the HTTP server accepts more than a port: a list ("1,2"
  // would also listen on every address), and suffixes.
  const std::string digits = colon == std::string::npos ? "" : listen.substr(colon + 1);
  std::uint16_t wanted = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), wanted);
  const bool is_port = error == std::errc() && end == digits.data() + digits.size();
  // Only the loopback addresses, and no name: a name could be resolved to another address.
  if (!is_port || (host != "127.0.0.1" && host != "[::1]")) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("daemon.metrics_listen '{}' must be 127.0.0.1:PORT or [::1]:PORT: "
                             "the endpoint is not authenticated",
                             listen));
  }
  auto parts = std::make_unique<Parts>();
  // The collector asks the daemon on the HTTP server's thread. MetricsEndpoint is destroyed before
  // the rooms, which ends that thread.
  parts->collector = std::make_shared<StatusCollector>(std::move(snapshot));
  // The library throws if it cannot listen; exceptions end here.
  try {
    // One thread: scrapes are rare, and a second one can wait.
    parts->exposer = std::make_unique<prometheus::Exposer>(listen, 1);
  } catch (const std::exception& failure) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("daemon.metrics_listen '{}': cannot listen there: does another "
                             "program, or another daemon of this node, use the port? Take another "
                             "one, or 0, for any that is free; the daemon logs which one ({})",
                             listen, failure.what()));
  }
  parts->exposer->RegisterCollectable(parts->collector);
  // Port 0 in the configuration lets the kernel choose; `address()` says which port that was.
  const std::vector<int> ports = parts->exposer->GetListeningPorts();
  const int port = ports.empty() ? 0 : ports.front();
  return std::unique_ptr<MetricsEndpoint>(
      new MetricsEndpoint(fmt::format("{}:{}", host, port), std::move(parts)));
}

}  // namespace forebay::daemon
