// `forebay tune`: which order a job should take. The figures that costs are computed from come from
// three places, and the output says of each which it was: given on the command line, measured on
// the running daemon, or assumed. What is given wins, so that a job can be planned that is larger
// than the one that runs, or that does not run yet.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/daemon_address.h"
#include "client/cli/human_text.h"
#include "client/cli/tune/class_layout.h"
#include "client/cli/tune/label_survey.h"
#include "client/cli/tune/mode_choice.h"
#include "client/cli/tune/node_survey.h"
#include "client/cli/tune/reading_cost.h"
#include "client/cli/tune/shuffle_quality.h"
#include "client/cli/tune/tune_report.h"
#include "forebay/client.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

// Rates of a node as sites have them today. They decide nothing unless the user leaves them out.
constexpr std::array<double, kReadSources> kAssumedRates = {4e9, 2e9, 1.25e9, 0.5e9};
constexpr double kAssumedGfsReads = 2'000;  // per second: a busy metadata server, a disk array
constexpr double kAssumedRam = 64.0 * (std::uint64_t{1} << 30);
constexpr std::uint64_t kAssumedClasses = 10;

struct TuneArguments {
  std::string dataset;
  std::string selection = "all";
  std::optional<std::uint64_t> samples, bytes;
  std::uint64_t extent = limits::kExtentBytesDefault;
  std::uint32_t global_batch = 64;
  std::uint64_t seed = 0;
  std::uint32_t nodes = 0;  // 0: those of the daemon's job
  std::optional<std::uint64_t> ram, ssd, copies, ram_rate, ssd_rate, gfs_rate;
  double link_gbps = 0;  // 0: not given
  double gfs_reads = 0;
  bool keeps_home_shares = false;
  std::string label_field;
  std::uint32_t classes = 0;  // 0: those of the data set
  std::vector<std::string> modes;
  // docs/tune.md says which measurement these come from.
  LossTolerance tolerance = {.batch = 0.02, .part = 0.2};
  double seconds = 2;
};

// A figure of the user wins over a measured one, because it may describe another job.
Figure Choose(std::optional<double> given, std::optional<double> measured, double assumed) {
  if (given) return {*given, "given"};
  if (measured) return {*measured, "measured"};
  return {assumed, "assumed"};
}

std::optional<double> IfGiven(const std::optional<std::uint64_t>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}
// Options that cannot be 0 have 0 as their "not given".
std::optional<double> IfPositive(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

Status CheckTuneArguments(const TuneArguments& arguments) {
  const auto usage = [](const std::string& text) {
    return Error(ErrorCode::kInvalidArgument, text);
  };
  const bool planned = arguments.samples.has_value() || arguments.bytes.has_value();
  if (arguments.dataset.empty() == !planned) {
    return usage("name a data set of the daemon (--dataset), or describe one that no daemon has "
                 "yet (--samples and --bytes)");
  }
  if (!planned) return {};
  // Without these checks, later computations would divide by 0 or fail in an assertion.
  if (!arguments.samples || !arguments.bytes) return usage("--samples and --bytes go together");
  if (!arguments.label_field.empty()) return usage("--label-field goes with --dataset");
  if (*arguments.samples == 0 || *arguments.samples > limits::kSampleCountMax) {
    return usage("--samples is " + std::to_string(*arguments.samples) + ", not in [1, 2^40]");
  }
  if (*arguments.bytes < *arguments.samples) return usage("--bytes is below one per sample");
  return {};
}

// Labels where they can be read in seconds; otherwise the worst case.
Status TakeClasses(const TuneArguments& arguments, Client* client, const DatasetInfo* info,
                   TuneFigures& figures) {
  const std::uint64_t samples = figures.dataset.samples;
  std::uint64_t classes = arguments.classes;
  const char* origin = "given";
  std::string why;
  if (client != nullptr && classes == 0) {
    FOREBAY_ASSIGN(const std::optional<std::string> field,
                   FindLabelField(*info, arguments.label_field));
    const bool small = samples <= kLabelSamplesMax &&
                       figures.dataset.bytes <= static_cast<double>(kLabelBytesMax);
    if (field && small) {
      FOREBAY_ASSIGN(const std::vector<std::int64_t> labels,
                     ReadLabels(*client, *info, arguments.selection, *field));
      // The survey and the stream asked at different times; a catalog may have changed between.
      if (labels.size() != samples) {
        return Error(ErrorCode::kDataLoss, "the stream has " + std::to_string(labels.size()) +
                                               " labels of " + std::to_string(samples) +
                                               " samples");
      }
      figures.classes = ClassLayout::FromLabels(labels);
      figures.classes_origin = fmt::format("measured, field '{}'", *field);
      return {};
    }
    // The output says why, because the quality is then that of the worst case.
    why = field ? "; the data set is too large to read its labels" : "; no field has labels";
  }
  if (classes == 0) {
    classes = std::min(kAssumedClasses, samples);
    origin = "assumed";
  }
  if (classes > samples) {
    return Error(ErrorCode::kInvalidArgument, "--classes is more than there are samples");
  }
  figures.classes = ClassLayout::Sorted(samples, classes);
  figures.classes_origin = fmt::format("{}, stored sorted by class{}", origin, why);
  return {};
}

void TakeFigures(const TuneArguments& arguments, const std::optional<NodeSurvey>& survey,
                 TuneFigures& figures) {
  const auto surveyed = [&](auto member) {
    return survey ? std::optional<double>(static_cast<double>((*survey).*member)) : std::nullopt;
  };
  figures.nodes = Choose(IfPositive(arguments.nodes), surveyed(&NodeSurvey::nodes), 1);
  figures.ram = Choose(IfGiven(arguments.ram), surveyed(&NodeSurvey::ram_bytes), kAssumedRam);
  figures.ssd = Choose(IfGiven(arguments.ssd), surveyed(&NodeSurvey::ssd_bytes), 0);
  figures.copies = Choose(IfGiven(arguments.copies), surveyed(&NodeSurvey::copies_bytes), 0);
  figures.gfs_reads = Choose(IfPositive(arguments.gfs_reads), std::nullopt, kAssumedGfsReads);
  // Links are sold in bits per second; everything else here is bytes.
  const std::optional<double> link = IfPositive(arguments.link_gbps * 1e9 / 8);
  const std::array<std::optional<double>, kReadSources> given = {
      IfGiven(arguments.ram_rate), IfGiven(arguments.ssd_rate), link, IfGiven(arguments.gfs_rate)};
  for (std::size_t i = 0; i < kReadSources; ++i) {
    figures.rates[i] = Choose(given[i], survey ? survey->rates[i] : std::nullopt,
                              kAssumedRates[i]);
  }
}

// Where the plan is the job that runs, its daemon has said whether it accepts a mode that needs the
// whole set. It knows what the figures do not: compressed extents, and other data sets.
std::string RefusalOf(const TuneArguments& arguments, const std::optional<NodeSurvey>& survey,
                      const TuneFigures& figures) {
  const bool is_planned = arguments.nodes > 0 || arguments.ram || arguments.ssd;
  if (survey && !is_planned) return survey->refusal;
  const double without_home = BytesWithoutHome(figures.dataset, figures.Job());
  if (without_home == 0) return "";
  return fmt::format("{} of a node's share of {} fit on none of its tiers",
                     HumanBytes(static_cast<std::uint64_t>(without_home)),
                     HumanBytes(static_cast<std::uint64_t>(figures.dataset.bytes /
                                                           figures.nodes.value)));
}

Result<TuneFigures> Gather(const CommandContext& context, const TuneArguments& arguments) {
  TuneFigures figures;
  figures.global_batch = arguments.global_batch;
  figures.tolerance = arguments.tolerance;
  figures.keeps_home_shares = arguments.keeps_home_shares;
  if (arguments.dataset.empty()) {
    figures.dataset = {
        .samples = *arguments.samples,
        .bytes = static_cast<double>(*arguments.bytes),
        .extents = std::max(1.0, static_cast<double>(*arguments.bytes) /
                                     static_cast<double>(arguments.extent))};
    TakeFigures(arguments, std::nullopt, figures);
    figures.refusal = RefusalOf(arguments, std::nullopt, figures);
    FOREBAY_TRY(TakeClasses(arguments, nullptr, nullptr, figures));
    return figures;
  }
  FOREBAY_ASSIGN(const std::string address, DaemonAddress(context));
  FOREBAY_ASSIGN(const auto client,
                 Client::Connect({.address = address,
                                  .client_name = "forebay-tune",
                                  .connect_timeout_ms = context.connect_timeout_ms}));
  FOREBAY_ASSIGN(const DatasetInfo info,
                 client->Describe(arguments.dataset, arguments.selection));
  // Building a catalog may take hours, and tiers that hold nothing could not be measured either.
  if (info.catalog_fingerprint == 0) {
    return Error(ErrorCode::kUnavailable, "data set '" + arguments.dataset +
                                              "' has no catalog yet; stage it first: forebay "
                                              "stage " +
                                              arguments.dataset);
  }
  // The survey comes first, because labels are read only of sets that it finds to be small.
  FOREBAY_ASSIGN(const NodeSurvey survey,
                 SurveyNode(context, *client, info, arguments.selection,
                            {.global_batch = arguments.global_batch,
                             .seconds = arguments.seconds}));
  figures.dataset = survey.dataset;
  figures.dataset_origin = "measured";
  TakeFigures(arguments, survey, figures);
  figures.refusal = RefusalOf(arguments, survey, figures);
  FOREBAY_TRY(TakeClasses(arguments, client.get(), &info, figures));
  return figures;
}

Result<std::vector<ModeAssessment>> Assess(const TuneArguments& arguments,
                                           const TuneFigures& figures) {
  const double extent_samples =
      static_cast<double>(figures.dataset.samples) / figures.dataset.extents;
  const ModeSetting setting = {
      .samples = figures.dataset.samples,
      .extent_samples = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(extent_samples)),
      .global_batch = arguments.global_batch,
      .nodes = static_cast<std::uint32_t>(figures.nodes.value)};
  std::vector<OrderShape> shapes = UsualModes(setting);
  for (const std::string& text : arguments.modes) {
    FOREBAY_ASSIGN(const OrderShape shape, ParseMode(text, setting));
    // A row that stands twice in the table would look like two modes.
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  }
  const auto is_refused = [&](const OrderShape& shape) {
    return !figures.refusal.empty() && NeedsWholeSet(shape.mode);
  };
  // A set of few extents has no window, so all its modes may be refused. This one never is.
  if (std::ranges::all_of(shapes, is_refused)) {
    shapes.push_back({.mode = OrderMode::kSequential});
  }
  std::vector<ModeAssessment> modes;
  for (const OrderShape& shape : shapes) {
    const OrderSpec spec = {
        .seed = arguments.seed, .sample_count = figures.dataset.samples, .shape = shape};
    // Modes of the user may be impossible, and so may `partial` for this number of nodes.
    FOREBAY_TRY(spec.Validate());
    ModeAssessment mode = {
        .shape = shape,
        .cost = CostOf(shape, figures.dataset, figures.Job()),
        .is_refused = is_refused(shape)};
    FOREBAY_ASSIGN(mode.quality,
                   MeasureShuffleQuality(
                       spec, {.global_batch = arguments.global_batch, .parts = setting.nodes},
                       *figures.classes));
    modes.push_back(mode);
    // The first mode is `global`, so its own loss comes out as 0.
    modes.back().loss = EntropyLossOf(mode.quality, modes.front().quality);
  }
  return modes;
}

Status RunTune(CommandContext& context, const TuneArguments& arguments) {
  FOREBAY_TRY(CheckTuneArguments(arguments));
  FOREBAY_ASSIGN(const TuneFigures figures, Gather(context, arguments));
  FOREBAY_ASSIGN(const std::vector<ModeAssessment> modes, Assess(arguments, figures));
  const ModeChoice choice = ChooseMode(modes, arguments.tolerance);
  if (context.json) {
    PrintTuneJson(context, figures, modes, choice);
  } else {
    PrintTuneText(context, figures, modes, choice);
  }
  return {};
}

void AddRates(Command& command, TuneArguments& arguments) {
  command.AddOption("--nodes", arguments.nodes, "Nodes of the job (default: the daemon's job)")
      .Within(1U, limits::kGlobalBatchMax);
  command.AddOption("--ram", arguments.ram, "RAM tier of a node (default: the daemon's)").Bytes();
  command.AddOption("--ssd", arguments.ssd, "SSD tier of a node (default: the daemon's)").Bytes();
  command
      .AddOption("--copies", arguments.copies,
                 "Bytes that a node keeps of other nodes' extents (default: the daemon's)")
      .Bytes();
  command
      .AddOption("--ram-rate", arguments.ram_rate,
                 "Bytes per second that a node reads from RAM (default: measured, else 4 GB/s)")
      .Bytes();
  command
      .AddOption("--ssd-rate", arguments.ssd_rate,
                 "Bytes per second that a node reads from SSD (default: measured, else 2 GB/s)")
      .Bytes();
  command
      .AddOption("--link-gbps", arguments.link_gbps,
                 "Gigabits per second that a node gets from others (default: measured, else 10)")
      .Within(0.001, 1e6);
  command
      .AddOption("--gfs-rate", arguments.gfs_rate,
                 "Bytes per second that a node gets from the GFS in large reads (default: "
                 "measured, else 500 MB/s)")
      .Bytes();
  command
      .AddOption("--gfs-reads", arguments.gfs_reads,
                 "Small reads per second that a node gets from the GFS (default: 2000)")
      .Within(1.0, 1e9);
  command.AddFlag("--keep-home-shares", arguments.keeps_home_shares,
                  "Cost of partial where each node has copies of its home share (key 'copies' of "
                  "the data set)");
}

}  // namespace

void AddTune(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "tune", "Say what each order of samples costs and how well it mixes; recommend one.");
  auto arguments = std::make_shared<TuneArguments>();
  command.AddOption("--dataset", arguments->dataset, "A data set of the daemon").ValueName("NAME");
  command.AddOption("--selection", arguments->selection, "Which samples of it (default: all)");
  command.AddOption("--samples", arguments->samples,
                    "Instead of a data set: samples of one that no daemon has yet");
  command.AddOption("--bytes", arguments->bytes, "With --samples: their bytes").Bytes();
  command.AddOption("--extent", arguments->extent, "With --samples: an extent (default: 32 MiB)")
      .Bytes()
      .Positive();
  command.AddOption("--global-batch", arguments->global_batch,
                    "Samples per step over all nodes (default: 64)")
      .Within(1U, limits::kGlobalBatchMax);
  command.AddOption("--seed", arguments->seed, "Of the order (default: 0)");
  AddRates(command, *arguments);
  command.AddOption("--label-field", arguments->label_field,
                    "Field with the class of a sample (default: label or labels)");
  command.AddOption("--classes", arguments->classes,
                    "Do not read labels: so many classes, stored sorted by class")
      .Within(1U, 1U << 20);
  command.AddOption("--mode", arguments->modes,
                    "Another mode to compare, block:RUN:WINDOW, partial:FRACTION[:RUN] or "
                    "sequential; may be repeated")
      .Verbatim();
  command
      .AddOption("--tolerance", arguments->tolerance.batch,
                 "Part of its class entropy that a batch may lose beside global (default: 0.02)")
      .Within(0.0, 1.0);
  command
      .AddOption("--part-tolerance", arguments->tolerance.part,
                 "The same of a node's part of a batch; 1 if the network does not normalise over "
                 "samples (default: 0.2)")
      .Within(0.0, 1.0);
  command.AddOption("--seconds", arguments->seconds,
                    "How long samples are read to measure (default: 2)")
      .Within(0.01, 600.0);
  command.SetFooter("Figures are those of one node in one epoch. What each of them means: "
                    "docs/tune.md.");
  command.OnRun([&context, arguments] { return RunTune(context, *arguments); });
}

}  // namespace forebay::cli
