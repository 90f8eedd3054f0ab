// Measures how much slower the nodes of a job stage because each extent's checksum is with two
// other nodes before anybody gets the extent (stage/first_read_sharing.h). The nodes live in this
// process and exchange checksums over loopback TCP, as daemons do. They stage one file of records
// from the page cache, which no GFS beats, so the exchange has nothing to hide behind. Each round
// stages with and without the exchange, in turns.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/peers/run_report.h"
#include "proto/contract/check.h"
#include "server/io/backend_selection.h"
#include "server/peer/testing/exchange_node.h"
#include "server/peer/testing/node_transport.h"

namespace forebay::peer {
namespace {

constexpr std::uint64_t kRecordBytes = 4096;

// Three nodes are the fewest with which each read has two keepers. Nine rounds give a median with
// four rounds on either side of it.
struct Settings {
  std::string folder = "/tmp";
  std::uint64_t set_bytes = 512 << 20;
  std::uint32_t nodes = 3;
  std::uint32_t readers = 8;  // of each node, as in a daemon by default
  std::size_t rounds = 9;
};

// What one staging of the whole set by all nodes took.
struct Run {
  double seconds = 0;
  double cpu_seconds = 0;  // of this process
  double requests_per_extent = 0;
  double keepers_per_extent = 0;  // nodes that were asked; 2 if all of them answer
};

// The data set, and what stages it. Each run has nodes of its own.
class Bench {
 public:
  // Writes the data set once. Its bytes do not matter, because nothing is compressed.
  explicit Bench(const Settings& settings)
      : settings_(settings), folder_(settings.folder + "/first_reads_bench") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream file(folder_ + "/data.bin", std::ios::binary);
    std::vector<char> record(kRecordBytes);
    for (std::uint64_t i = 0; i < settings.set_bytes / kRecordBytes; ++i) {
      std::ranges::fill(record, static_cast<char>(i % 251));
      file.write(record.data(), static_cast<std::streamsize>(record.size()));
    }
    // Closed before the check, because the last bytes are written by close.
    file.close();
    FOREBAY_CHECK(file.good());
    auto selected = io::SelectBackend(io::BackendChoice::kAutomatic);
    FOREBAY_CHECK(selected.has_value());
    backend_ = std::move(selected->backend);
  }
  ~Bench() { std::filesystem::remove_all(folder_); }

  // Stages the whole set on new nodes, each its share, with or without the exchange.
  Run Stage(std::uint64_t extent_bytes, bool gives_first_reads) {
    stage::DatasetOptions dataset = stage::RecordDataset(kRecordBytes);
    dataset.source.extent_bytes = extent_bytes;
    // A group for each extent, so that the set is shared evenly although it is small.
    dataset.group_bytes = extent_bytes;
    std::vector<plan::Node> all;
    for (std::uint32_t rank = 0; rank < settings_.nodes; ++rank) all.push_back({NodeRank(rank)});
    const std::unique_ptr<NodeTransport> transport = MakeTransport(TransportKind::kGrpc);
    std::vector<std::unique_ptr<ExchangeNode>> nodes;
    for (std::uint32_t rank = 0; rank < settings_.nodes; ++rank) {
      nodes.push_back(
          std::make_unique<ExchangeNode>(*backend_, NodeRank(rank), all, EmptyFolder(rank)));
      nodes.back()->gives_first_reads = gives_first_reads;
      // There is room for more than the node's share, so that no extent waits for memory. First
      // reads are saved to files, as daemons do, because that is a part of what the exchange costs.
      const Status started = nodes.back()->Start(*transport,
                                                 {.ram_bytes = settings_.set_bytes,
                                                  .reserve_bytes = settings_.set_bytes / 4,
                                                  .readers = settings_.readers,
                                                  .request_bytes = 4 << 20,
                                                  .saves_catalogs = true},
                                                 dataset);
      FOREBAY_CHECK(started.has_value());
    }
    Run run;
    const double cpu = bench::CpuSeconds();
    const auto begin = std::chrono::steady_clock::now();
    // All nodes stage at the same time. The threads join at the end of this block, before the clock
    // is read again.
    {
      std::vector<std::jthread> threads;
      for (const auto& node : nodes) {
        threads.emplace_back([&node] { FOREBAY_CHECK(node->rig.StageAll().has_value()); });
      }
    }
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    run.seconds = wall.count();
    run.cpu_seconds = bench::CpuSeconds() - cpu;
    if (gives_first_reads) {
      std::uint64_t requests = 0;
      std::uint64_t given = 0;
      for (std::uint32_t rank = 0; rank < settings_.nodes; ++rank) {
        requests += transport->first_read_requests(NodeRank(rank));
        given += transport->first_reads_given(NodeRank(rank));
      }
      const std::uint64_t extents = settings_.set_bytes / extent_bytes;
      run.requests_per_extent = static_cast<double>(requests) / static_cast<double>(extents);
      run.keepers_per_extent = static_cast<double>(given) / static_cast<double>(extents);
    }
    // Before the nodes go, because its servers refer to them.
    transport->Stop();
    return run;
  }

 private:
  // Makes the folder of a node. Nothing of an earlier run is left in it, because a saved catalog
  // and saved first reads would spare this run a part of the work. The data set is linked and not
  // copied, so that it stays in the page cache.
  std::string EmptyFolder(std::uint32_t rank) const {
    const std::string folder = folder_ + "/" + std::to_string(rank);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder + "/gfs");
    std::filesystem::create_directory(folder + "/state");
    std::filesystem::create_hard_link(folder_ + "/data.bin", folder + "/gfs/data.bin");
    return folder;
  }

  const Settings settings_;
  const std::string folder_;
  std::unique_ptr<io::IoBackend> backend_;
};

std::string TextOf(const std::vector<double>& values) {
  const bench::Spread spread = bench::SpreadOf(values);
  return fmt::format("{:.2f} ({:.2f} .. {:.2f})", spread.median, spread.low, spread.high);
}

// Measures extents of one size. Ratios are taken within a round, so that what disturbs a round
// disturbs both runs.
void Measure(Bench& bench, const Settings& settings, std::uint64_t extent_bytes) {
  std::array<std::vector<double>, 2> rates;  // GB/s; 1: with the exchange
  std::vector<double> rate_ratios;
  std::vector<double> cpu_ratios;
  std::vector<double> requests;
  std::vector<double> keepers;
  for (std::size_t round = 0; round < settings.rounds; ++round) {
    std::array<Run, 2> runs;
    // The order changes from round to round, in case that one run leaves something behind for the
    // other.
    for (const std::size_t turn : {0U, 1U}) {
      const std::size_t with = (round + turn) % 2;
      runs[with] = bench.Stage(extent_bytes, with == 1);
      rates[with].push_back(static_cast<double>(settings.set_bytes) / 1e9 / runs[with].seconds);
    }
    rate_ratios.push_back(runs[0].seconds / runs[1].seconds);
    cpu_ratios.push_back(runs[1].cpu_seconds / runs[0].cpu_seconds);
    requests.push_back(runs[1].requests_per_extent);
    keepers.push_back(runs[1].keepers_per_extent);
  }
  fmt::print("extents of {} KiB\n", extent_bytes / 1024);
  fmt::print("  GB/s without the exchange  {}\n", TextOf(rates[0]));
  fmt::print("  GB/s with it               {}\n", TextOf(rates[1]));
  fmt::print("  rate with / without        {}\n", TextOf(rate_ratios));
  fmt::print("  CPU time with / without    {}\n", TextOf(cpu_ratios));
  fmt::print("  requests per extent        {}\n", TextOf(requests));
  fmt::print("  nodes asked per extent     {}\n", TextOf(keepers));
  std::fflush(stdout);
}

}  // namespace
}  // namespace forebay::peer

int main(int argc, char** argv) {
  forebay::peer::Settings settings;
  std::vector<std::uint64_t> extent_kib = {1024, 4096, 16384};
  CLI::App app("Staging with and without the exchange of first checksums between nodes.");
  app.add_option("--folder", settings.folder, "where files are written")->capture_default_str();
  app.add_option("--extent-kib", extent_kib, "sizes of an extent")->capture_default_str();
  app.add_option("--set-bytes", settings.set_bytes, "bytes of the data set, a multiple of those of "
                                                    "an extent")
      ->capture_default_str();
  app.add_option("--nodes", settings.nodes, "nodes of the job")->capture_default_str();
  app.add_option("--readers", settings.readers, "reader threads of a node")->capture_default_str();
  app.add_option("--rounds", settings.rounds, "rounds, each with and without")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  forebay::peer::Bench bench(settings);
  for (const std::uint64_t kib : extent_kib) {
    forebay::peer::Measure(bench, settings, kib * 1024);
  }
  return 0;
}
