// Plans jobs that are too large to run: the functions of the daemons that decide who reads, keeps
// and asks for what, run for jobs of many nodes and data sets of up to 10^10 samples, and a model
// of what follows from them on a machine (scale_model.h). Prints a line of JSON for each result;
// its `kind` is `form`, `start`, `prefetch`, `shares`, `traffic`, `recovery`, `probing`, `caps`,
// `links` or `connections`.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/nodes/scale_data.h"
#include "bench/nodes/scale_links.h"
#include "bench/nodes/scale_model.h"
#include "bench/nodes/scale_service.h"
#include "bench/nodes/scale_state.h"
#include "bench/nodes/scale_traffic.h"
#include "proto/contract/limits.h"
#include "server/io/backend_selection.h"
#include "server/plan/membership.h"

namespace forebay::bench {
namespace {

using nlohmann::json;

const std::map<std::string, DataForm> kForms = {{"pack", DataForm::kPack},
                                                {"records", DataForm::kRecords},
                                                {"shards", DataForm::kShards}};

struct Options {
  std::vector<std::uint32_t> nodes = {16, 64, 256, 1024, 4096, 16384};
  std::vector<std::string> forms = {"pack", "records", "shards"};
  DataSize data;
  std::uint32_t batch = 64;  // samples of each node in a step
  std::uint32_t prefetch = 4;
  std::uint32_t windows = 3;
  std::vector<std::uint64_t> window_runs = {64, 0};
  double step_ms = 20;
  std::vector<std::uint32_t> lost = {1, 16, 256};
  std::uint64_t seed = 1;
  double link_bytes_per_s = 0;
  std::uint32_t connections = 256;
  bool starts = true;
  bool serves = true;
  std::string folder;
};

// Lines are flushed one by one, because a large job takes minutes.
void Print(const json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

// Returns the presets, or one machine with the link that the caller gives.
std::vector<Machine> MachinesOf(const Options& options) {
  if (options.link_bytes_per_s > 0) {
    // Everything else is that of a machine whose tiers and GFS are no limit.
    Machine machine = *FindMachine("400g");
    machine.name = "given";
    machine.link_bytes_per_s = options.link_bytes_per_s;
    return {machine};
  }
  return {kMachines.begin(), kMachines.end()};
}

template <typename T>
double MaxOf(const std::vector<T>& values) {
  return static_cast<double>(*std::ranges::max_element(values));
}

template <typename T>
double MeanOf(const std::vector<T>& values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

// Returns the sample standard deviation, or 0 if there is a single value.
double DeviationOf(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = MeanOf(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// One order of a stream, with its name in the output.
struct Shape {
  std::string name;
  OrderShape order;
};

std::vector<Shape> ShapesOf(const Options& options, const Layout& layout, std::uint32_t nodes) {
  std::vector<Shape> shapes = {{.name = "global", .order = {}}};
  for (const std::uint64_t asked : options.window_runs) {
    const std::uint64_t runs = asked == 0 ? std::uint64_t{4} * nodes : asked;
    // Runs are whole extents, as docs/tune.md advises.
    const std::uint64_t run =
        layout.first_samples.size() > 1 ? layout.first_samples[1] : layout.sample_count;
    shapes.push_back({.name = "block " + (asked == 0 ? "4 a node" : std::to_string(runs)),
                      .order = {.mode = OrderMode::kBlock,
                                .block_samples = run,
                                .window_runs = runs}});
  }
  shapes.push_back({.name = "sequential", .order = {.mode = OrderMode::kSequential}});
  return shapes;
}

// Runs all jobs that the options ask for, one after another: form by form, size by size.
class Planner {
 public:
  Planner(const Options& options, io::IoBackend& backend) : options_(options), backend_(backend) {}

  Status Run() {
    if (options_.serves) {
      FOREBAY_TRY(Connect());
      for (const std::uint32_t nodes : options_.nodes) Serve(nodes);
    }
    for (const std::string& form : options_.forms) {
      DataSize data = options_.data;
      data.form = kForms.at(form);
      FOREBAY_TRY(RunForm(form, data));
    }
    return {};
  }

 private:
  // Measures what a node needs for its links to the other nodes, whatever the data are. This comes
  // before all other measurements: memory that they leave to the process would be used again here,
  // and not be counted.
  Status Connect() {
    FOREBAY_ASSIGN(const ConnectionsState connections, MeasureConnections(options_.connections));
    Print({{"kind", "connections"}, {"connections", options_.connections},
           {"open_s", connections.open_s}, {"kept_bytes", connections.kept_bytes}});
    for (const std::uint32_t nodes : options_.nodes) {
      FOREBAY_ASSIGN(const LinksState links, MeasureLinks(nodes));
      Print({{"kind", "links"}, {"nodes", nodes}, {"create_s", links.create_s},
             {"kept_bytes", links.kept_bytes}, {"look_s", links.look_s}});
    }
    return {};
  }

  // Simulates what the nodes do whatever the data are. The largest loss that the options have, and
  // that is a quarter of the nodes at most, happens at once.
  void Serve(std::uint32_t nodes) {
    std::uint32_t most_lost = 0;
    for (const std::uint32_t lost : options_.lost) {
      if (lost <= nodes / 4) most_lost = std::max(most_lost, lost);
    }
    const Probing probing = ProbingOf(nodes, most_lost, options_.seed);
    Print({{"kind", "probing"}, {"nodes", nodes}, {"lost", most_lost},
           {"messages", probing.messages}, {"bytes", probing.bytes},
           {"known_s", probing.known_s}, {"wrong_verdicts", probing.wrong_verdicts}});
    const Politeness politeness = PolitenessOf(nodes, most_lost, options_.seed);
    Print({{"kind", "caps"}, {"nodes", nodes}, {"lost", most_lost}, {"asks", politeness.asks},
           {"most_of_cap", politeness.most_of_cap}, {"used_of_cap", politeness.used_of_cap},
           {"after_of_cap", politeness.after_of_cap}});
  }

  Status RunForm(const std::string& form, const DataSize& data) {
    json line = {{"kind", "form"}, {"form", form}, {"samples", data.sample_count},
                 {"sample_bytes", data.sample_bytes}};
    std::string catalog_path;
    if (data.form == DataForm::kShards) {
      if (ShardCount(data) > limits::kObjectCountMax) {
        return Error(ErrorCode::kResourceExhausted,
                     std::to_string(ShardCount(data)) + " shards, at most " +
                         std::to_string(limits::kObjectCountMax) +
                         " are allowed (kObjectCountMax); lower --samples or --sample-bytes");
      }
      line["shards"] = ShardCount(data);
      // docs/catalog.md, "Sizes measured": JSON lines with keys of 15 bytes, tar with two fields
      // and keys of 12 bytes.
      line["samples_max_jsonl"] = SamplesWithoutIndexMax(10 + 15);
      line["samples_max_tar"] = SamplesWithoutIndexMax(18 + 12);
    } else {
      FOREBAY_ASSIGN(catalog_path, SaveCatalogOf(data, backend_, options_.folder));
      line["catalog_bytes"] = std::filesystem::file_size(catalog_path);
    }
    Print(line);
    for (const std::uint32_t nodes : options_.nodes) {
      FOREBAY_TRY(RunJob(data, form, catalog_path, nodes));
    }
    return {};
  }

  // `catalog_path` is empty for a data set in shards.
  Status RunJob(const DataSize& data, const std::string& form, const std::string& catalog_path,
                std::uint32_t nodes) {
    const plan::Membership membership(NodeRank(0), NodesOf(nodes));
    Layout layout;
    if (catalog_path.empty()) {
      layout = LayoutOfShards(data.sample_count, data.sample_bytes, ShardCount(data), membership);
    } else {
      FOREBAY_ASSIGN(const std::shared_ptr<const catalog::Catalog> catalog,
                     catalog::Catalog::Load(catalog_path));
      layout = LayoutOf(*catalog, data.sample_bytes, membership);
    }
    if (options_.starts && !catalog_path.empty()) {
      FOREBAY_TRY(Start(form, catalog_path, nodes, ShapesOf(options_, layout, nodes)));
    }
    Shares(form, layout, nodes);
    for (const Shape& shape : ShapesOf(options_, layout, nodes)) {
      FOREBAY_TRY(CountTraffic(form, layout, nodes, shape));
    }
    for (const std::uint32_t lost : options_.lost) {
      if (lost < nodes) Lose(form, layout, membership, lost);
    }
    return {};
  }

  // Measures memory and time of the start of one node. They are the same on all nodes, except for
  // what depends on the extents that a node owns.
  Status Start(const std::string& form, const std::string& catalog_path, std::uint32_t nodes,
               const std::vector<Shape>& shapes) {
    const auto look_ahead = [&](stage::Dataset& dataset) -> Status {
      for (const Shape& shape : shapes) FOREBAY_TRY(LookAhead(form, dataset, nodes, shape));
      return {};
    };
    FOREBAY_ASSIGN(const NodeState state, MeasureStart(catalog_path, nodes, backend_,
                                                       options_.folder, look_ahead));
    Print({{"kind", "start"}, {"form", form}, {"nodes", nodes}, {"wall_s", state.wall_s},
           {"cpu_s", state.cpu_s}, {"catalog_s", state.catalog_s}, {"shares_s", state.shares_s},
           {"kept_bytes", state.kept_bytes}, {"peak_bytes", state.peak_bytes},
           {"resident_bytes", state.resident_bytes}, {"image_bytes", state.image_bytes},
           {"extents", state.extents}, {"own_extents", state.own_extents}});
    return {};
  }

  Status LookAhead(const std::string& form, stage::Dataset& dataset, std::uint32_t nodes,
                   const Shape& shape) {
    if (NeedsWholeSet(shape.order.mode)) return {};  // nothing is read ahead of need
    FOREBAY_ASSIGN(const Prefetch prefetch,
                   PrefetchOf(dataset, shape.order, nodes, options_.batch, options_.seed));
    Print({{"kind", "prefetch"}, {"form", form}, {"nodes", nodes}, {"mode", shape.name},
           {"begin_s", prefetch.begin_s}, {"window_s", prefetch.window_s},
           {"extents", prefetch.extents}});
    return {};
  }

  // Prints how even the shares of the nodes are, and how long the first reading of the set takes,
  // in which each group is opened once.
  void Shares(const std::string& form, const Layout& layout, std::uint32_t nodes) {
    const std::vector<std::uint64_t> bytes = layout.BytesOfNodes(nodes);
    const auto set_bytes = static_cast<double>(layout.set_bytes());
    const auto groups = static_cast<double>(layout.group_count());
    json line = {{"kind", "shares"}, {"form", form}, {"nodes", nodes}, {"set_bytes", set_bytes},
                 {"groups", groups}, {"share_bytes", MeanOf(bytes)},
                 {"largest_of_share", MaxOf(bytes) / MeanOf(bytes)}};
    for (const Machine& machine : MachinesOf(options_)) {
      line["machines"][std::string(machine.name)] = {
          {"cold_s", GfsSeconds(set_bytes, MaxOf(bytes), groups, machine)},
          {"epoch_gfs_bytes", EpochGfsBytes(set_bytes, nodes, machine)}};
    }
    Print(line);
  }

  // Counts some windows of an epoch: all steps of a job of 16,384 nodes would take an hour.
  Status CountTraffic(const std::string& form, const Layout& layout, std::uint32_t nodes,
                      const Shape& shape) {
    FOREBAY_ASSIGN(const StepPlan plan,
                   StepPlan::Create({.sample_count = layout.sample_count,
                                     .global_batch = std::uint64_t{options_.batch} * nodes,
                                     .ranks = nodes}));
    const std::uint64_t steps = std::min<std::uint64_t>(options_.prefetch, plan.steps());
    if (steps == 0) {
      return Error(ErrorCode::kInvalidArgument,
                   "an epoch of " + std::to_string(nodes) +
                       " nodes has no whole step; raise --samples or lower --batch");
    }
    const OrderSpec spec = {.seed = options_.seed,
                            .sample_count = layout.sample_count,
                            .shape = shape.order};
    FOREBAY_TRY(spec.Validate());
    const Order order(spec, EpochId(0));
    const std::uint64_t windows_of_epoch = plan.steps() / steps;
    const std::uint64_t count = std::min<std::uint64_t>(options_.windows, windows_of_epoch);
    std::vector<Traffic> traffic;
    for (std::uint64_t i = 0; i < count; ++i) {
      // The windows are spread evenly over the epoch. In a random order, any others would do.
      traffic.push_back(
          TrafficOf(layout, order, plan, windows_of_epoch / count * i * steps, steps));
    }
    PrintTraffic(form, nodes, shape, traffic, plan.steps(), steps);
    return {};
  }

  // Prints the figures of one step. Times are those of a window, divided by its steps.
  void PrintTraffic(const std::string& form, std::uint32_t nodes, const Shape& shape,
                    const std::vector<Traffic>& traffic, std::uint64_t epoch_steps,
                    std::uint64_t steps) {
    std::vector<double> received, received_max, sent_max, askers, askers_max;
    for (const Traffic& window : traffic) {
      received.push_back(MeanOf(window.received_bytes) / static_cast<double>(steps));
      received_max.push_back(MaxOf(window.received_bytes) / static_cast<double>(steps));
      sent_max.push_back(MaxOf(window.sent_bytes) / static_cast<double>(steps));
      askers.push_back(window.mean_askers);
      askers_max.push_back(MaxOf(window.askers));
    }
    json line = {{"kind", "traffic"}, {"form", form}, {"nodes", nodes}, {"mode", shape.name},
                 {"steps", epoch_steps}, {"counted_steps", steps * traffic.size()},
                 {"received_bytes", MeanOf(received)}, {"received_max_bytes", MaxOf(received_max)},
                 {"sent_max_bytes", MaxOf(sent_max)}, {"askers", MeanOf(askers)},
                 {"askers_max", MaxOf(askers_max)},
                 {"askers_expected", ExpectedAskers(nodes, options_.batch)}};
    const double compute_s = options_.step_ms * 1e-3 * static_cast<double>(steps);
    for (const Machine& machine : MachinesOf(options_)) {
      std::vector<double> link_s, stalls;
      for (const Traffic& window : traffic) {
        // The ranks of a training wait for each other, so the slowest node decides.
        double longest = 0;
        for (std::size_t node = 0; node < nodes; ++node) {
          longest = std::max(longest, LinkSeconds(window.received_bytes[node],
                                                  window.sent_bytes[node],
                                                  machine.link_bytes_per_s));
        }
        link_s.push_back(longest);
        stalls.push_back(StallShare(compute_s, longest));
      }
      const double window_s = WindowSeconds(compute_s, MeanOf(link_s));
      const double windows = static_cast<double>(epoch_steps) / static_cast<double>(steps);
      line["machines"][std::string(machine.name)] = {
          {"link_s", MeanOf(link_s) / static_cast<double>(steps)},
          {"link_error_s", StandardError(DeviationOf(link_s), static_cast<double>(link_s.size()),
                                         windows) / static_cast<double>(steps)},
          {"link_bytes_per_s",
           std::max(MaxOf(received_max), MaxOf(sent_max)) * static_cast<double>(steps) / window_s},
          {"stall", MeanOf(stalls)},
          {"epoch_s", windows * window_s}};
    }
    Print(line);
  }

  // Counts what the others read again after `lost_count` nodes were lost, and how long the GFS
  // needs for it.
  void Lose(const std::string& form, const Layout& layout, const plan::Membership& membership,
            std::uint32_t lost_count) {
    // The lost nodes are drawn with an Order: that of std::shuffle depends on the library.
    const Order order({.seed = options_.seed, .sample_count = membership.nodes().size()},
                      EpochId(0));
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t i = 0; i < lost_count; ++i) {
      ranks.push_back(static_cast<std::uint32_t>(order.Forward(Position(i))));
    }
    const Recovery recovery = RecoveryOf(layout, membership.nodes(), ranks);
    const auto nodes = static_cast<double>(membership.nodes().size());
    const double largest = MaxOf(recovery.bytes_of_nodes);
    const auto bytes = static_cast<double>(recovery.bytes);
    json line = {{"kind", "recovery"}, {"form", form}, {"nodes", membership.nodes().size()},
                 {"lost", lost_count}, {"bytes", recovery.bytes}, {"groups", recovery.groups},
                 {"substitutes", std::ranges::count_if(recovery.bytes_of_nodes,
                                                       [](std::uint64_t of) { return of > 0; })},
                 {"largest_bytes", largest},
                 {"largest_of_mean", bytes > 0 ? largest / (bytes / (nodes - lost_count)) : 0},
                 {"largest_of_share", largest / (static_cast<double>(layout.set_bytes()) / nodes)}};
    for (const Machine& machine : MachinesOf(options_)) {
      line["machines"][std::string(machine.name)] =
          GfsSeconds(bytes, largest, static_cast<double>(recovery.groups), machine);
    }
    Print(line);
  }

  const Options& options_;
  io::IoBackend& backend_;
};

// The assumptions belong to the figures, so --help shows them.
std::string Footer() {
  std::string text = "machines (scale_model.h):";
  for (const Machine& machine : kMachines) {
    text += "\n  " + std::string(machine.name) + ": " + std::string(machine.source);
  }
  return text;
}

// A folder for catalogs, which goes with this object unless the caller has given one.
class Folder {
 public:
  explicit Folder(const std::string& given) : path_(given), is_given_(!given.empty()) {}
  ~Folder() {
    std::error_code ignored;  // a temporary folder that stays harms nobody
    if (!is_given_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  Status Make() {
    if (is_given_) return {};
    std::string pattern = (std::filesystem::temp_directory_path() / "scale.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      return Error::FromErrno(errno, "make a temporary folder");
    }
    path_ = pattern;
    return {};
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const bool is_given_;
};

// Errors end the program: the figures after one would mean nothing.
Status Plan(Options options) {
  Folder folder(options.folder);
  FOREBAY_TRY(folder.Make());
  options.folder = folder.path();
  FOREBAY_ASSIGN(const io::SelectedBackend selected,
                 io::SelectBackend(io::BackendChoice::kThreads, 1));
  return Planner(options, *selected.backend).Run();
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) {
  forebay::bench::Options options;
  CLI::App app("scale_bench: plans jobs of many nodes with the functions of the daemons");
  app.add_option("--nodes", options.nodes, "sizes of the jobs")
      ->check(CLI::Range(1.0, static_cast<double>(forebay::limits::kNodeCountMax)))
      ->capture_default_str();
  app.add_option("--forms", options.forms, "how the data are stored")
      ->check(CLI::IsMember(forebay::bench::kForms))
      ->capture_default_str();
  app.add_option("--samples", options.data.sample_count)
      ->check(CLI::Range(1.0, static_cast<double>(forebay::limits::kSampleCountMax)))
      ->capture_default_str();
  app.add_option("--sample-bytes", options.data.sample_bytes)
      ->check(CLI::Range(1.0, static_cast<double>(forebay::limits::kChunkBytesMax)))
      ->capture_default_str();
  app.add_option("--extent-bytes", options.data.extent_bytes)
      ->check(CLI::Range(1.0, static_cast<double>(forebay::limits::kExtentBytesMax)))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "samples of each node in a step")
      ->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--prefetch", options.prefetch, "steps that overlap; as many are counted together")
      ->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--windows", options.windows, "how often so many steps are counted in an epoch")
      ->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--window-runs", options.window_runs,
                 "of orders in mode block; 0: four for each node")->capture_default_str();
  app.add_option("--step-ms", options.step_ms, "time in which a node computes a step")
      ->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--lost", options.lost, "nodes that are lost at once")->capture_default_str();
  app.add_option("--seed", options.seed, "of orders, and of which nodes are lost")
      ->capture_default_str();
  app.add_option("--link-bytes-per-s", options.link_bytes_per_s,
                 "models one machine with this link instead of the presets");
  app.add_option("--connections", options.connections,
                 "encrypted connections that are opened, with two files each")
      ->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("!--no-service", options.serves, "leave out links, connections, probing and caps");
  app.add_flag("!--no-start", options.starts, "leave out memory and time of a node's start");
  app.add_option("--folder", options.folder, "for catalogs, absolute; default: temporary");
  app.footer(forebay::bench::Footer());
  CLI11_PARSE(app, argc, argv);
  const forebay::Status done = forebay::bench::Plan(options);
  if (!done.has_value()) {
    std::fprintf(stderr, "scale_bench: %s\n", done.error().ToString().c_str());
    return 1;
  }
  return 0;
}
