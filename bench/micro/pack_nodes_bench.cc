// Compares two ways in which samples of a pack come from other nodes: as the node that reads
// chooses (rows that their owners decode, single chunks, or extents, whichever are fewest bytes),
// or with copies of extents alone. Both ways run in turn in each round, on the same pack: the rooms
// of several daemons in this process, connected over loopback TCP, one reader on each node. Prints
// time, bytes that the nodes sent each other, and CPU time. The copies that the readers make of
// each batch cost the same CPU time in both ways.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/peers/run_report.h"
#include "compress/encode/testing/pack_test_model.h"
#include "server/io/testing/memory_backend.h"
#include "server/stream/testing/node_group.h"

namespace {

using namespace forebay;  // NOLINT: a program, not a header

// A pack that is compressed to about a third. A node's RAM holds all of it, because with less the
// way that copies extents ends with an error: the extents of a few batches are the whole set.
struct Options {
  std::uint32_t nodes = 4;
  std::uint64_t samples = 4096;
  std::uint32_t side = 128;          // of a sample, in pixels of one byte
  std::uint64_t extent_bytes = 256 << 10;
  std::uint32_t batch = 16;          // of each node
  std::uint32_t epochs = 1;
  std::uint64_t ram_percent = 130;     // RAM of a node, of the stored set
  std::uint64_t decoded_percent = 25;  // its decoded cache, of the decoded set
  OrderMode order = OrderMode::kGlobal;
  std::uint64_t block_samples = 16;    // of a run, where the order is of blocks
  std::uint64_t window_runs = 16;
  std::size_t rounds = 9;
};

// A step that fails ends the program: its figures would mean nothing.
template <typename T>
T Require(Result<T> result, const char* what) {
  if (result.has_value()) return std::move(*result);
  fmt::print(stderr, "pack_nodes_bench: {}: {}\n", what, result.error().ToString());
  std::exit(1);
}

void Require(const Status& status, const char* what) {
  if (status.has_value()) return;
  fmt::print(stderr, "pack_nodes_bench: {}: {}\n", what, status.error().ToString());
  std::exit(1);
}

// Smooth images with noise in their lowest bits, which compress to about a third.
compress::PackModel Images(const Options& options) {
  compress::PackField field;
  field.name = "image";
  field.kind = compress::FieldKind::kImage;
  field.dtype = Dtype::kU8;
  field.rank = 2;
  field.extent = field.tile = {options.side, options.side, 1, 1};
  compress::PackModel model;
  model.schema.fields = {field};
  std::uint64_t noise = 7;  // of a linear congruential generator (Knuth's MMIX constants)
  for (std::uint64_t sample = 0; sample < options.samples; ++sample) {
    std::vector<std::byte> pixels(std::size_t{options.side} * options.side);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
      pixels[i] = static_cast<std::byte>((i / options.side + 2 * (i % options.side) + sample +
                                          (noise >> 62)) &
                                         0xFF);
    }
    model.samples.push_back({std::move(pixels)});
  }
  return model;
}

// What one job takes, over all nodes.
struct Figures {
  double seconds = 0;
  double sent_bytes = 0;
  double cpu_seconds = 0;  // of this process: what all daemons would use together
};

// One rank of the stream: pulls a few batches ahead, as a trainer does.
void ReadEpochs(stream::NodeGroup& group, std::uint32_t rank, const Options& options) {
  const auto sink = group.node(rank).MakeSink();
  const auto session =
      Require(group.node(rank).Open({.batch = options.batch * options.nodes,
                                     .mode = options.order,
                                     .block_samples = options.block_samples,
                                     .window_runs = options.window_runs,
                                     .ranks = options.nodes,
                                     .rank = rank},
                                    *sink),
              "open a stream");
  const std::uint64_t steps = session->spec().plan.steps();
  for (std::uint32_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (std::uint64_t step = 0; step < steps; step += 4) {
      const std::uint64_t count = std::min<std::uint64_t>(4, steps - step);
      for (std::uint64_t i = 0; i < count; ++i) {
        Require(session->Pull({.first = {.epoch = EpochId(epoch), .step = StepId(step + i)}}),
                "pull");
      }
      // All are released before the next ones are pulled, so that the slots hold.
      if (!sink->WaitFor(count) || !sink->errors().empty()) {
        Require(sink->errors().empty() ? Status(Error(ErrorCode::kUnavailable, "no batch came"))
                                       : Status(sink->errors().front()),
                "read a batch");
      }
      for (const stream::CollectingSink::Taken& batch : sink->TakeBatches()) {
        Require(session->Release({&batch.id, 1}), "release");
      }
    }
  }
  session->Close();
}

// Runs one job from staged tiers. The nodes are new in each round, because copies of extents that
// are left from one round would change the next one.
Figures Measure(bool chooses, io::MemoryBackend& backend, std::uint64_t stored_bytes,
                const Options& options) {
  const std::uint64_t decoded_bytes = options.samples * options.side * options.side;
  stream::ServeOptions serve = {
      .ram_bytes = stored_bytes * options.ram_percent / 100,
      .slot_bytes = 64 << 20,
      .extent_bytes = options.extent_bytes,
      .decoded_bytes = decoded_bytes * options.decoded_percent / 100,
      .source = catalog::DatasetSource(),
      .takes_rows = chooses};
  serve.source->format = catalog::Format::kPack;
  const auto group = Require(stream::NodeGroup::Create(backend, options.nodes, 0, serve,
                                                       peer::TransportKind::kGrpc),
                             "start the nodes");
  for (std::uint32_t rank = 0; rank < options.nodes; ++rank) {
    Require(group->node(rank).StageAll(), "stage");
  }
  const double cpu = bench::CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  // The threads join at the end of this block, before the clock is read again.
  {
    std::vector<std::jthread> readers;
    for (std::uint32_t rank = 0; rank < options.nodes; ++rank) {
      readers.emplace_back([&, rank] { ReadEpochs(*group, rank, options); });
    }
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  Figures figures = {.seconds = wall.count(), .cpu_seconds = bench::CpuSeconds() - cpu};
  for (std::uint32_t rank = 0; rank < options.nodes; ++rank) {
    figures.sent_bytes += static_cast<double>(group->transport().bytes_sent(NodeRank(rank)));
  }
  return figures;
}

std::string SpreadOf(const std::vector<Figures>& rounds, double Figures::* figure, double unit) {
  std::vector<double> values;
  for (const Figures& round : rounds) values.push_back(round.*figure / unit);
  const bench::Spread spread = bench::SpreadOf(std::move(values));
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", spread.median, spread.low, spread.high);
}

// The order of the two ways is the same in each round, but no state is left between them.
void Run(const Options& options) {
  const compress::TestFolder folder;
  const std::vector<std::byte> pack = compress::WritePack(Images(options), folder);
  const double decoded = static_cast<double>(options.samples * options.side * options.side);
  std::vector<Figures> of_choice, of_extents;
  for (std::size_t round = 0; round < options.rounds; ++round) {
    for (const bool chooses : {true, false}) {
      io::MemoryBackend backend;
      Require(backend.AddFile("/gfs/data.pack", pack), "write the pack");
      (chooses ? of_choice : of_extents)
          .push_back(Measure(chooses, backend, pack.size(), options));
    }
  }
  fmt::print("{} nodes, {} samples of {} bytes, pack of {:.1f} MB ({:.2f}x), extents of {} KiB, "
             "{} epochs, batch {} a node, RAM {} %, decoded cache {} %, {} rounds\n",
             options.nodes, options.samples, options.side * options.side,
             static_cast<double>(pack.size()) / 1e6, decoded / static_cast<double>(pack.size()),
             options.extent_bytes >> 10, options.epochs, options.batch, options.ram_percent,
             options.decoded_percent, options.rounds);
  fmt::print("{:10} {:>22} {:>26} {:>22}\n", "", "s (low-high)", "MB between nodes", "CPU s");
  for (const auto& [name, rounds] : {std::pair{"chosen", &of_choice}, {"extents", &of_extents}}) {
    fmt::print("{:10} {:>22} {:>26} {:>22}\n", name,
               SpreadOf(*rounds, &Figures::seconds, 1),
               SpreadOf(*rounds, &Figures::sent_bytes, 1e6),
               SpreadOf(*rounds, &Figures::cpu_seconds, 1));
  }
  // Ratios are taken within a round, so that what disturbs a round disturbs both ways.
  std::vector<Figures> ratios;
  for (std::size_t i = 0; i < of_choice.size(); ++i) {
    ratios.push_back({.seconds = of_extents[i].seconds / of_choice[i].seconds,
                      .sent_bytes = of_extents[i].sent_bytes / of_choice[i].sent_bytes,
                      .cpu_seconds = of_extents[i].cpu_seconds / of_choice[i].cpu_seconds});
  }
  fmt::print("rows alone would be {:.2f} MB\n",
             decoded * options.epochs * (options.nodes - 1) / options.nodes / 1e6);
  fmt::print("extents over chosen: time {}, bytes {}, CPU {}\n",
             SpreadOf(ratios, &Figures::seconds, 1), SpreadOf(ratios, &Figures::sent_bytes, 1),
             SpreadOf(ratios, &Figures::cpu_seconds, 1));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Samples of a pack from other nodes: as chosen, beside copies of extents");
  app.add_option("--nodes", options.nodes)->capture_default_str();
  app.add_option("--samples", options.samples)->capture_default_str();
  app.add_option("--side", options.side)->capture_default_str();
  app.add_option("--extent-bytes", options.extent_bytes)->capture_default_str();
  app.add_option("--batch", options.batch, "of each node")->capture_default_str();
  app.add_option("--epochs", options.epochs)->capture_default_str();
  app.add_option("--ram-percent", options.ram_percent, "RAM of a node, of the pack")
      ->capture_default_str();
  app.add_option("--decoded-percent", options.decoded_percent,
                 "decoded cache of a node, of the decoded set")
      ->capture_default_str();
  const std::map<std::string, OrderMode> orders = {{"global", OrderMode::kGlobal},
                                                   {"block", OrderMode::kBlock},
                                                   {"sequential", OrderMode::kSequential}};
  app.add_option("--order", options.order, "global, block or sequential")
      ->transform(CLI::CheckedTransformer(orders));
  app.add_option("--block-samples", options.block_samples)->capture_default_str();
  app.add_option("--window-runs", options.window_runs)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Run(options);
  return 0;
}
