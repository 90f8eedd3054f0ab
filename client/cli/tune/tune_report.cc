// Every figure is printed with its origin: a cost that rests on an assumed rate must not look like
// a measured one.
#include "client/cli/tune/tune_report.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/human_text.h"
#include "client/cli/json_value.h"

namespace forebay::cli {
namespace {

std::string BytesText(double bytes) { return HumanBytes(static_cast<std::uint64_t>(bytes)); }

// What the costs below rest on, so that a user sees which figures to measure or to give.
void PrintFigures(CommandContext& context, const TuneFigures& figures) {
  context.out << fmt::format(
      "data set        {} samples, {} in {} extents ({})\n"
      "classes         {} ({})\n"
      "nodes           {:.0f} ({}), a global batch of {} (given)\n"
      "tiers of a node RAM {} ({}), SSD {} ({}); copies of others' extents {} ({})\n",
      HumanCount(figures.dataset.samples), BytesText(figures.dataset.bytes),
      HumanCount(static_cast<std::uint64_t>(figures.dataset.extents)), figures.dataset_origin,
      HumanCount(figures.classes->class_count()), figures.classes_origin, figures.nodes.value,
      figures.nodes.origin, figures.global_batch, BytesText(figures.ram.value),
      figures.ram.origin, BytesText(figures.ssd.value), figures.ssd.origin,
      BytesText(figures.copies.value), figures.copies.origin);
  // All rates are in one line, so that the table below stays in view on a terminal.
  std::string rates;
  for (std::size_t i = 0; i < kReadSources; ++i) {
    rates += fmt::format("{}{} {} ({})", i == 0 ? "" : ", ",
                         ReadSourceName(static_cast<ReadSource>(i)),
                         HumanRate(figures.rates[i].value), figures.rates[i].origin);
  }
  context.out << fmt::format("rates of a node {}, GFS {:.0f} reads/s ({})\n\n", rates,
                             figures.gfs_reads.value, figures.gfs_reads.origin);
}

// One line for each mode, in the order in which they were assessed.
void PrintModes(CommandContext& context, std::span<const ModeAssessment> modes,
                const TuneFigures& figures) {
  const LossTolerance& tolerance = figures.tolerance;
  TextTable table({"MODE", "I/O TIME", "SLOWEST", "RAM", "SSD", "LINK", "GFS", "GFS READS",
                   "BATCH ENTROPY", "PART ENTROPY", "DISPLACED", "NEIGHBOURS"});
  for (const ModeAssessment& mode : modes) {
    std::vector<std::string> cells = {
        fmt::format("{}{}", ModeText(mode.shape), mode.is_refused ? " (refused)" : ""),
        HumanSeconds(mode.cost.seconds), std::string(ReadSourceName(mode.cost.slowest))};
    for (const double bytes : mode.cost.bytes) cells.push_back(BytesText(bytes));
    cells.push_back(HumanCount(static_cast<std::uint64_t>(mode.cost.gfs_reads)));
    // The loss stands beside the entropy: that of `global` is below 1 as well, and depends on the
    // batch, so the entropy alone says nothing about the mode.
    const auto entropy = [](double value, double loss, double allowed) {
      return fmt::format("{:.4f} (-{:.1f} %{})", value, 100 * loss, loss <= allowed ? "" : "!");
    };
    cells.push_back(entropy(mode.quality.batch_entropy, mode.loss.batch, tolerance.batch));
    cells.push_back(entropy(mode.quality.part_entropy, mode.loss.part, tolerance.part));
    cells.push_back(fmt::format("{:.3f}", mode.quality.displacement));
    cells.push_back(fmt::format("{:.4f}", mode.quality.repeated_neighbours));
    table.Add(std::move(cells));
  }
  context.out << table.ToString();
  context.out << "Bytes and times are those of one node in one epoch. ! marks what loses more "
                 "class entropy than the tolerance.\n";
  if (!figures.refusal.empty()) {
    context.out << "refused: a daemon refuses these modes: " << figures.refusal << "\n";
  }
  context.out << "\n";
}

JsonObject FigureJson(const Figure& figure) {
  return {{"value", figure.value}, {"origin", figure.origin}};
}

// The parameters have the names of StreamOptions, so that a script can fill them in.
JsonObject ModeJson(const ModeAssessment& mode, const TuneFigures& figures) {
  JsonObject line = {{"mode", ModeText(mode.shape)},
                     {"order_mode", OrderModeName(mode.shape.mode)},
                     {"block_samples", mode.shape.block_samples},
                     {"window_runs", mode.shape.window_runs},
                     {"canonical_nodes", mode.shape.canonical_nodes},
                     {"exchange_millionths", mode.shape.exchange_millionths},
                     {"seconds", mode.cost.seconds},
                     {"slowest", ReadSourceName(mode.cost.slowest)}};
  // The names are a part of the schema forebay.tune.v1, and in the order of ReadSource.
  for (std::size_t i = 0; i < kReadSources; ++i) {
    constexpr std::array<const char*, kReadSources> kNames = {"ram_bytes", "ssd_bytes",
                                                              "link_bytes", "gfs_bytes"};
    line.Add(kNames[i], mode.cost.bytes[i]);
  }
  line.Add("gfs_reads", mode.cost.gfs_reads);
  line.Add("displacement", mode.quality.displacement);
  line.Add("batch_entropy", mode.quality.batch_entropy);
  line.Add("part_entropy", mode.quality.part_entropy);
  line.Add("repeated_neighbours", mode.quality.repeated_neighbours);
  line.Add("positions", mode.quality.positions);
  line.Add("batch_entropy_loss", mode.loss.batch);
  line.Add("part_entropy_loss", mode.loss.part);
  line.Add("within_tolerance", figures.tolerance.Allows(mode.loss));
  line.Add("is_refused", mode.is_refused);
  line.Add("refusal", mode.is_refused ? figures.refusal : std::string());
  return line;
}

}  // namespace

// The cost model needs the values only, and not where they come from.
JobFigures TuneFigures::Job() const {
  JobFigures job = {.nodes = static_cast<std::uint64_t>(nodes.value),
                    .ram_bytes = ram.value,
                    .ssd_bytes = ssd.value,
                    .copies_bytes = copies.value,
                    .gfs_reads_per_s = gfs_reads.value,
                    .keeps_home_shares = keeps_home_shares};
  for (std::size_t i = 0; i < kReadSources; ++i) job.rates[i] = rates[i].value;
  return job;
}

void PrintTuneText(CommandContext& context, const TuneFigures& figures,
                   std::span<const ModeAssessment> modes, const ModeChoice& choice) {
  PrintFigures(context, figures);
  PrintModes(context, modes, figures);
  const OrderShape& shape = modes[choice.index].shape;
  context.out << fmt::format("{}: {}: {}\n  forebay-train {}\n  {}\n",
                             choice.mixes_well ? "recommended" : "none is recommended; cheapest",
                             ModeText(shape), ReasonOf(modes, choice), TrainerFlags(shape),
                             StreamOptionsText(shape));
  if (!choice.mixes_well) {
    context.out << "note: with larger tiers or more nodes, a daemon accepts global\n";
  }
  // Somebody who has read about `partial` would otherwise wonder why it is never recommended.
  if (figures.nodes.value > 1 && !figures.keeps_home_shares) {
    context.out << "note: partial saves no bytes unless nodes have copies of their home shares "
                   "(key 'copies' of the data set); --keep-home-shares shows what it saves then\n";
  }
}

void PrintTuneJson(CommandContext& context, const TuneFigures& figures,
                   std::span<const ModeAssessment> modes, const ModeChoice& choice) {
  JsonObject rates;
  for (std::size_t i = 0; i < kReadSources; ++i) {
    constexpr std::array<const char*, kReadSources> kNames = {
        "ram_bytes_per_s", "ssd_bytes_per_s", "link_bytes_per_s", "gfs_bytes_per_s"};
    rates.Add(kNames[i], FigureJson(figures.rates[i]));
  }
  rates.Add("gfs_reads_per_s", FigureJson(figures.gfs_reads));
  context.PrintJson("tune", {{"event", "figures"},
                             {"samples", figures.dataset.samples},
                             {"bytes", figures.dataset.bytes},
                             {"extents", figures.dataset.extents},
                             {"origin", figures.dataset_origin},
                             {"global_batch", figures.global_batch},
                             {"classes", figures.classes->class_count()},
                             {"classes_origin", figures.classes_origin},
                             {"nodes", FigureJson(figures.nodes)},
                             {"ram_bytes", FigureJson(figures.ram)},
                             {"ssd_bytes", FigureJson(figures.ssd)},
                             {"copies_bytes", FigureJson(figures.copies)},
                             {"rates", rates},
                             {"keeps_home_shares", figures.keeps_home_shares}});
  // One object per mode: a script filters lines more easily than it walks an array.
  for (const ModeAssessment& mode : modes) {
    JsonObject line = {{"event", "mode"}};
    line.Add(ModeJson(mode, figures));
    context.PrintJson("tune", line);
  }
  // The last object repeats the chosen mode, so that a script needs no other line.
  JsonObject answer = {{"event", "recommendation"},
                       {"is_recommended", choice.mixes_well},
                       {"tolerance", figures.tolerance.batch},
                       {"part_tolerance", figures.tolerance.part}};
  answer.Add(ModeJson(modes[choice.index], figures));
  answer.Add("reason", ReasonOf(modes, choice));
  answer.Add("trainer_flags", TrainerFlags(modes[choice.index].shape));
  answer.Add("stream_options", StreamOptionsText(modes[choice.index].shape));
  context.PrintJson("tune", answer);
}

}  // namespace forebay::cli
