// Chooses which plots a run gives: loss, evaluations, rates, time classes by rank, memory. Long
// curves are thinned to means over equal runs of steps, so that the page stays small, and many
// ranks are drawn as the first ones only.
#include "trainer/core/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <vector>

#include "trainer/core/report/svg_page.h"

namespace forebay::train {
namespace {

// A third of the plot's width in pixels: more points would not be seen.
constexpr std::size_t kPointsMax = 240;
constexpr std::size_t kBarsMax = 32;

// Means over runs of equally many neighbours, so that no more than kPointsMax are left. Points
// that are not finite are left out of a mean.
PlotLine Thinned(PlotLine line) {
  // Rounded up, so that never more than kPointsMax are left.
  const std::size_t together = (line.points.size() + kPointsMax - 1) / kPointsMax;
  if (together <= 1) return line;
  PlotLine thin{.name = line.name, .points = {}};
  for (std::size_t begin = 0; begin < line.points.size(); begin += together) {
    const std::size_t end = std::min(begin + together, line.points.size());
    double sum = 0;
    std::size_t finite = 0;
    for (std::size_t at = begin; at < end; ++at) {
      if (!std::isfinite(line.points[at].second)) continue;
      sum += line.points[at].second;
      ++finite;
    }
    // A run without a finite point becomes a gap, which shows that the loss was lost there.
    thin.points.emplace_back(line.points[begin].first,
                             finite == 0 ? NAN : sum / static_cast<double>(finite));
  }
  return thin;
}

// In the order of the enumeration, which is that of the parts of a bar.
std::vector<std::string> TimeNames() {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < kTimeClasses; ++at) {
    names.emplace_back(Name(static_cast<TimeClass>(at)));
  }
  return names;
}

// Over all steps that the file has.
StepAccount SumOf(const RecordedRank& rank) {
  StepAccount sum;
  for (const auto& [step, account] : rank.steps) sum += account;
  return sum;
}

// Of the steps' time, so that ranks with different numbers of steps can be compared.
std::vector<double> PercentsOf(const StepAccount& account) {
  const double whole = std::max(1.0, static_cast<double>(account.step_ns));
  std::vector<double> percents;
  for (const std::uint64_t ns : account.ns) {
    percents.push_back(100.0 * static_cast<double>(ns) / whole);
  }
  return percents;
}

// Loss and learning rate by step, and the metric of the evaluations.
void AddCurves(const RunRecord& run, SvgPage& page) {
  PlotLine loss{.name = "training", .points = {}};
  PlotLine rate;
  for (const auto& [step, figures] : run.steps) {
    const auto x = static_cast<double>(step);
    loss.points.emplace_back(x, figures.loss);
    rate.points.emplace_back(x, figures.learning_rate);
  }
  PlotLine evaluated{.name = "evaluation", .points = {}};
  PlotLine score;
  for (const RecordedEvaluation& evaluation : run.evaluations) {
    const auto x = static_cast<double>(evaluation.global_step);
    evaluated.points.emplace_back(x, evaluation.loss);
    score.points.emplace_back(x, evaluation.score);
  }
  if (!run.steps.empty()) {
    std::vector<PlotLine> losses = {Thinned(std::move(loss))};
    if (!evaluated.points.empty()) losses.push_back(std::move(evaluated));
    // Losses do not start at zero: their changes would be too small to see.
    page.AddLines("loss", "step", losses);
    page.AddLines("learning rate", "step", {Thinned(std::move(rate))});
  }
  if (score.points.empty()) return;
  page.AddLines(run.evaluations.front().metric + " of evaluations", "step", {score}, true);
}

// Samples per second of the run, and how much of the processors' rate the ranks use.
void AddRates(const RunRecord& run, SvgPage& page) {
  if (run.ranks.empty()) return;
  const RecordedRank& first = run.ranks.front();
  PlotLine rate;
  for (const auto& [step, account] : first.steps) {
    const auto samples = first.samples.find(step);
    // The samples are those of all ranks, so the first rank's figure is that of the run.
    if (account.step_ns == 0 || samples == first.samples.end()) continue;
    rate.points.emplace_back(static_cast<double>(step), static_cast<double>(samples->second) /
                                                            static_cast<double>(account.step_ns) *
                                                            1e9);
  }
  page.AddLines("samples/s", "step", {Thinned(std::move(rate))}, true);
  std::vector<PlotLine> utilisations;
  for (const RecordedRank& rank : run.ranks) {
    // More lines could not be told apart.
    if (rank.utilisation.empty() || utilisations.size() >= 8) continue;
    PlotLine line{.name = fmt::format("rank {}", rank.rank), .points = {}};
    for (const auto& [step, share] : rank.utilisation) {
      line.points.emplace_back(static_cast<double>(step), 100 * share);
    }
    utilisations.push_back(Thinned(std::move(line)));
  }
  if (!utilisations.empty()) page.AddLines("MFU, %", "step", utilisations, true);
}

// Bars of the time classes, summed over all ranks, for equal runs of steps.
void AddTimesByStep(const RunRecord& run, SvgPage& page) {
  // Ordered by step, because ranks may lack some steps: one that was killed earlier, for example.
  std::map<std::uint64_t, StepAccount> steps;
  for (const RecordedRank& rank : run.ranks) {
    for (const auto& [step, account] : rank.steps) steps[step] += account;
  }
  // Equal runs of steps, at most kBarsMax of them.
  const std::size_t together = (steps.size() + kBarsMax - 1) / kBarsMax;
  std::vector<PlotBar> bars;
  StepAccount sum;
  std::size_t taken = 0;
  std::uint64_t first = 0;
  for (const auto& [step, account] : steps) {
    if (taken == 0) first = step;
    sum += account;
    // The last bar may stand for fewer steps. It shows shares, so it can be compared all the same.
    if (++taken < together && step != steps.rbegin()->first) continue;
    // Every fourth bar has a number: more would overlap.
    bars.push_back({.label = bars.size() % 4 == 0 ? fmt::format("{}", first) : std::string(),
                    .parts = PercentsOf(sum)});
    sum = {};
    taken = 0;
  }
  page.AddBars("where the time of all ranks went, by step", " %", TimeNames(), bars);
}

// "3: r1 s1" for rank 3, which is stage 1 of replica 1.
std::string LabelOf(const RecordedRank& rank) {
  return rank.stages > 1 ? fmt::format("{}: r{} s{}", rank.rank, rank.rank / rank.stages,
                                       rank.rank % rank.stages)
                         : fmt::format("{}", rank.rank);
}

// Three plots with a bar for each rank: its time, its planned memory, and the bytes that it sends.
void AddBarsByRank(const RunRecord& run, SvgPage& page) {
  std::vector<PlotBar> times;
  std::vector<PlotBar> planned;
  std::vector<PlotBar> bytes;
  // The first ranks stand for the others; with hundreds of bars none could be read.
  for (std::size_t at = 0; at < run.ranks.size() && at < kBarsMax; ++at) {
    const RecordedRank& rank = run.ranks[at];
    const StepAccount sum = SumOf(rank);
    times.push_back({.label = LabelOf(rank), .parts = PercentsOf(sum)});
    PlotBar& memory = planned.emplace_back(PlotBar{.label = LabelOf(rank), .parts = {}});
    for (const std::uint64_t peak : rank.planned_bytes) {
      memory.parts.push_back(static_cast<double>(peak) * 1e-6);
    }
    PlotBar& channels = bytes.emplace_back(PlotBar{.label = LabelOf(rank), .parts = {}});
    for (const std::uint64_t moved : sum.bytes) {
      // Per step, so that runs of different lengths can be compared.
      channels.parts.push_back(static_cast<double>(moved) * 1e-6 /
                               std::max(1.0, static_cast<double>(rank.steps.size())));
    }
  }
  page.AddBars("where the time went, by rank", " %", TimeNames(), times);
  std::vector<std::string> classes;
  for (std::size_t at = 0; at < kMemoryClasses; ++at) {
    classes.emplace_back(Name(static_cast<MemoryClass>(at)));
  }
  page.AddBars("planned memory by rank, each class at its own peak", " MB", classes, planned);
  std::vector<std::string> channels;
  for (std::size_t at = 0; at < kByteChannels; ++at) {
    channels.emplace_back(Name(static_cast<ByteChannel>(at)));
  }
  page.AddBars("bytes that leave a rank in a step; swap: both ways", " MB", channels, bytes);
}

// A level that rises all the time is a leak.
void AddMemory(const RunRecord& run, SvgPage& page) {
  std::vector<PlotLine> lines;
  for (const RecordedRank& rank : run.ranks) {
    // As above: more lines could not be told apart.
    if (lines.size() >= 8) break;
    PlotLine line{.name = fmt::format("rank {}", rank.rank), .points = {}};
    for (const auto& [step, account] : rank.steps) {
      line.points.emplace_back(static_cast<double>(step),
                               static_cast<double>(account.peak_bytes) * 1e-6);
    }
    lines.push_back(Thinned(std::move(line)));
  }
  page.AddLines("highest resident set of the process so far, MB", "step", lines, true);
}

std::string Cell(const std::string& text) { return "<td>" + EscapedXml(text) + "</td>"; }

// A table of the ranks with measured figures beside predicted ones.
std::string RankRows(const RunRecord& run) {
  std::string rows =
      "<table><tr><th>rank</th><th>steps</th><th>ms/step</th><th>predicted</th><th>idle or "
      "waiting in the plan</th><th>predicted bubble</th><th>MFU</th></tr>\n";
  for (const RecordedRank& rank : run.ranks) {
    const StepAccount sum = SumOf(rank);
    const double steps = std::max(1.0, static_cast<double>(rank.steps.size()));
    double utilisation = 0;
    // Steps without the figure are not in this map and do not lower the mean.
    for (const auto& [step, share] : rank.utilisation) utilisation += share;
    // At least 1, so that a rank without steps is a row of zeros.
    const double plan_ns = std::max(1.0, static_cast<double>(sum.plan_ns));
    rows += "<tr>" + Cell(LabelOf(rank)) + Cell(fmt::format("{}", rank.steps.size())) +
            Cell(fmt::format("{:.2f}", static_cast<double>(sum.step_ns) * 1e-6 / steps)) +
            Cell(fmt::format("{:.2f}", rank.predicted_step_ns * 1e-6)) +
            Cell(fmt::format("{:.1f} %",
                             100 - 100 * static_cast<double>(sum.UsefulNs()) / plan_ns)) +
            Cell(fmt::format("{:.1f} %", 100 * rank.predicted_bubble)) +
            Cell(rank.utilisation.empty()
                     ? "-"
                     : fmt::format("{:.0f} %",
                                   100 * utilisation /
                                       static_cast<double>(rank.utilisation.size()))) +
            "</tr>\n";
  }
  return rows + "</table>\n";
}

}  // namespace

std::string ReportSvg(const RunRecord& run) {
  SvgPage page;
  AddCurves(run, page);
  AddRates(run, page);
  if (!run.ranks.empty()) {
    AddTimesByStep(run, page);
    AddBarsByRank(run, page);
    AddMemory(run, page);
  }
  return page.Finish();
}

// Runs with different metrics share a plot, under the name of the last one's.
std::string ComparisonSvg(const std::vector<NamedRun>& runs) {
  std::vector<PlotLine> losses;
  std::vector<PlotLine> scores;
  std::string metric = "score";
  for (const NamedRun& named : runs) {
    PlotLine loss{.name = named.name, .points = {}};
    PlotLine score{.name = named.name, .points = {}};
    for (const RecordedEvaluation& evaluation : named.run.evaluations) {
      const auto x = static_cast<double>(evaluation.global_step);
      loss.points.emplace_back(x, evaluation.loss);
      score.points.emplace_back(x, evaluation.score);
      metric = evaluation.metric;
    }
    losses.push_back(std::move(loss));
    scores.push_back(std::move(score));
  }
  SvgPage page;
  page.AddLines(metric + " of evaluations", "step", scores);
  page.AddLines("loss of evaluations", "step", losses);
  return page.Finish();
}

// One file without references to others, so that it can be sent and kept.
std::string ReportHtml(const RunRecord& run, const std::string& title) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:2em;max-width:70em}}table{{border-collapse:"
      "collapse;margin:1em 0}}td,th{{border:1px solid #ccc;padding:.2em .6em;text-align:left}}"
      "</style></head>\n<body><h1>{0}</h1>\n",
      EscapedXml(title));
  if (!run.summary.empty()) {
    html += "<table>\n";
    for (const auto& [name, value] : run.summary) {
      html += "<tr>" + Cell(name) + Cell(value) + "</tr>\n";
    }
    html += "</table>\n";
  }
  if (!run.ranks.empty()) html += RankRows(run);
  return html + ReportSvg(run) + "</body></html>\n";
}

}  // namespace forebay::train
