#include "trainer/schedule/memory_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace forebay::train {
namespace {

// Times are foreseen to within some percent: both means together must promise that much more than
// one of them.
constexpr double kMixingGain = 1.01;

// Computations of modules beside which a swap may come back.
constexpr std::array<std::uint32_t, 4> kAhead = {1, 2, 4, 8};

// By stage, as all of its replicas do the same.
using StageKeeping = std::vector<RankKeeping>;

struct Trial {
  StageKeeping keeping;
  PlanFacts facts;
  Simulation simulation;
  bool fits = false;

  std::uint64_t PeakBytes() const { return *std::ranges::max_element(facts.peak_bytes); }
};

// What the search may do with what is saved.
struct Means {
  bool swaps = false;
  bool recomputes = false;
};
constexpr Means kRecomputing = {.swaps = false, .recomputes = true};
constexpr Means kSwapping = {.swaps = true, .recomputes = false};
constexpr Means kBoth = {.swaps = true, .recomputes = true};

// One module of a stage; of one micro-batch, or of all.
struct Place {
  std::uint32_t stage = 0;
  std::uint32_t module = 0;  // of the stage
  std::optional<std::uint32_t> micro_batch = {};
};

std::string Megabytes(std::uint64_t bytes) {
  return fmt::format("{:.3f} MB", static_cast<double>(bytes) * 1e-6);
}

std::string Milliseconds(std::uint64_t ns) {
  return fmt::format("{:.3f} ms", static_cast<double>(ns) * 1e-6);
}

class MemorySearch {
 public:
  explicit MemorySearch(const MemoryRequest& request) : request_(request) {
    const StepPlan& plan = request.plan;
    for (std::uint32_t stage = 0; stage < plan.layout.stages; ++stage) {
      for (std::uint32_t module = 0; module < Cost(stage).modules.size(); ++module) {
        places_.push_back({.stage = stage, .module = module});
      }
    }
  }

  Result<Trial> Run() {
    FOREBAY_ASSIGN(const Trial kept, Try(Everywhere({})));
    if (kept.fits) return kept;
    least_bytes_ = kept.PeakBytes();
    // Each of the means alone, as if there were no other; then both, from where these have ended.
    std::vector<Trial> alone;
    for (const Means& means : {kRecomputing, kSwapping}) {
      if (!MayUse(means)) continue;
      FOREBAY_ASSIGN(std::optional<Trial> best, RunWith(means, kept, {}));
      if (best) alone.push_back(*std::move(best));
    }
    const auto pure = std::ranges::min_element(alone, Better);
    if (MayUse(kBoth)) {
      FOREBAY_ASSIGN(std::optional<Trial> mixed, RunWith(kBoth, kept, alone));
      if (mixed && (alone.empty() || IsWorthMixing(*mixed, *pure))) return *std::move(mixed);
    }
    if (!alone.empty()) return std::move(*pure);
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("the budget of {} bytes a rank is too small: with all that may be "
                             "moved away the fullest rank still needs {}; more stages or smaller "
                             "micro-batches need less",
                             request_.budget_bytes, least_bytes_));
  }

  // The best from these trials on, from the greedy choice, and from all that the means allow.
  Result<std::optional<Trial>> RunWith(const Means& means, const Trial& kept,
                                       std::vector<Trial> trials) {
    means_ = means;
    left_ = request_.most_trials;
    FOREBAY_ASSIGN(Trial greedy, Greedy(kept));
    trials.push_back(std::move(greedy));
    for (const ModuleKeeping& option : Options()) {
      if (!option.moves()) continue;
      FOREBAY_ASSIGN(Trial trial, Try(Everywhere(option)));
      trials.push_back(std::move(trial));
    }
    std::optional<Trial> best;
    for (Trial& trial : trials) {
      least_bytes_ = std::min(least_bytes_, trial.PeakBytes());
      if (!trial.fits) continue;
      Improve(trial);
      if (!best || Better(trial, *best)) best = std::move(trial);
    }
    return best;
  }

  Result<Trial> Try(StageKeeping keeping) const {
    Trial trial;
    FOREBAY_ASSIGN(const StepPlan plan, Rewrite(keeping));
    FOREBAY_ASSIGN(trial.facts, CheckPlan(plan, {}));
    FOREBAY_ASSIGN(trial.simulation, SimulatePlan(plan, request_.costs));
    trial.keeping = std::move(keeping);
    const std::uint64_t host = *std::ranges::max_element(trial.facts.peak_host_bytes);
    trial.fits = trial.PeakBytes() <= request_.budget_bytes &&
                 (request_.host_budget_bytes == 0 || host <= request_.host_budget_bytes);
    return trial;
  }

  Result<StepPlan> Rewrite(const StageKeeping& keeping) const {
    return MoveSaved(request_.plan, ByRank(keeping));
  }
  StepKeeping ByRank(const StageKeeping& keeping) const {
    StepKeeping choices;
    for (std::uint32_t rank = 0; rank < request_.plan.layout.ranks(); ++rank) {
      choices.push_back(keeping[request_.plan.layout.StageOf(rank)]);
    }
    return choices;
  }
  StageKeeping Everywhere(const ModuleKeeping& keeping) const {
    StageKeeping all;
    for (std::uint32_t stage = 0; stage < request_.plan.layout.stages; ++stage) {
      all.emplace_back(share(), std::vector<ModuleKeeping>(Cost(stage).modules.size()));
    }
    for (const Place& place : places_) Put(all, place, keeping);
    return all;
  }

 private:
  const StageCost& Cost(std::uint32_t stage) const { return request_.plan.stages.stages[stage]; }
  std::uint32_t share() const { return request_.plan.MicroBatchesPerReplica(); }

  std::vector<ModuleKeeping> Options() const {
    std::vector<ModuleKeeping> options;
    for (const Keeping graph : {Keeping::kKeep, Keeping::kSwap, Keeping::kRecompute}) {
      for (const Keeping output : {Keeping::kKeep, Keeping::kSwap}) {
        const ModuleKeeping option = {.graph = graph, .output = output};
        if (Swaps(option) && !means_.swaps) continue;
        if (graph == Keeping::kRecompute && !means_.recomputes) continue;
        options.push_back(option);
      }
    }
    return options;
  }

  static bool Swaps(const ModuleKeeping& keeping) {
    return keeping.graph == Keeping::kSwap || keeping.output == Keeping::kSwap;
  }

  // The options with a swap several times over: those of all micro-batches may come back earlier
  // or later, that of one as early as it does.
  std::vector<ModuleKeeping> OptionsAt(const StageKeeping& keeping, const Place& place) const {
    std::vector<ModuleKeeping> options;
    for (ModuleKeeping option : Options()) {
      option.ahead = keeping[place.stage][place.micro_batch.value_or(0)][place.module].ahead;
      options.push_back(option);
      if (place.micro_batch || !Swaps(option)) continue;
      for (const std::uint32_t ahead : kAhead) {
        option.ahead = ahead;
        options.push_back(option);
      }
    }
    return options;
  }

  // What is too small to be swapped is kept.
  void Put(StageKeeping& keeping, const Place& place, ModuleKeeping wanted) const {
    const StageModule& cost = Cost(place.stage).modules[place.module];
    if (wanted.graph == Keeping::kSwap && cost.graph_bytes < request_.least_swap_bytes) {
      wanted.graph = Keeping::kKeep;
    }
    if (wanted.output == Keeping::kSwap && cost.output_bytes < request_.least_swap_bytes) {
      wanted.output = Keeping::kKeep;
    }
    if (!Swaps(wanted)) wanted.ahead = 1;
    for (std::uint32_t at = 0; at < share(); ++at) {
      if (!place.micro_batch || *place.micro_batch == at) {
        keeping[place.stage][at][place.module] = wanted;
      }
    }
  }

  bool MayUse(const Means& means) const {
    return (!means.swaps || request_.may_swap) && (!means.recomputes || request_.may_recompute);
  }

  static bool Better(const Trial& one, const Trial& other) {
    if (one.simulation.step_ns != other.simulation.step_ns) {
      return one.simulation.step_ns < other.simulation.step_ns;
    }
    return one.PeakBytes() < other.PeakBytes();
  }

  static bool IsWorthMixing(const Trial& mixed, const Trial& pure) {
    return static_cast<double>(mixed.simulation.step_ns) * kMixingGain <
           static_cast<double>(pure.simulation.step_ns);
  }

  // Moves one module after the other, those first that cost least time for each byte of the
  // peak they save when they are moved alone.
  Result<Trial> Greedy(const Trial& kept) {
    struct Candidate {
      Place place;
      ModuleKeeping keeping;
      double ns_per_byte = 0;
    };
    std::vector<Candidate> candidates;
    for (const Place& place : places_) {
      for (const ModuleKeeping& option : Options()) {
        if (!option.moves() || left_ == 0) continue;
        StageKeeping keeping = kept.keeping;
        Put(keeping, place, option);
        if (keeping == kept.keeping) continue;
        --left_;
        FOREBAY_ASSIGN(const Trial trial, Try(std::move(keeping)));
        const std::uint64_t saved = SavedBytes(kept, trial, place.stage);
        if (saved == 0) continue;
        const double added = static_cast<double>(trial.simulation.step_ns) -
                             static_cast<double>(kept.simulation.step_ns);
        candidates.push_back({place, option, added / static_cast<double>(saved)});
      }
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::ns_per_byte);
    Trial trial = kept;
    for (const Candidate& candidate : candidates) {
      if (trial.fits) break;
      StageKeeping keeping = trial.keeping;
      if (keeping[candidate.place.stage][0][candidate.place.module].moves()) continue;
      Put(keeping, candidate.place, candidate.keeping);
      FOREBAY_ASSIGN(Trial next, Try(std::move(keeping)));
      if (SavedBytes(trial, next, candidate.place.stage) > 0) trial = std::move(next);
    }
    return trial;
  }

  std::uint64_t SavedBytes(const Trial& before, const Trial& after, std::uint32_t stage) const {
    const std::uint32_t rank = request_.plan.layout.RankOf(0, stage);
    const std::uint64_t had = before.facts.peak_bytes[rank];
    return had - std::min(had, after.facts.peak_bytes[rank]);
  }

  // Exchanges single choices as long as the step gets shorter: first of all micro-batches of a
  // module, then of one, then those of two modules for each other's.
  void Improve(Trial& trial) {
    bool moved = true;
    while (moved && left_ > 0) {
      moved = false;
      for (const Place& place : places_) moved = Exchange(trial, place) || moved;
      for (const Place& place : places_) {
        for (std::uint32_t at = 0; at < share() && share() > 1; ++at) {
          Place one = place;
          one.micro_batch = at;
          moved = Exchange(trial, one) || moved;
        }
      }
      for (std::size_t one = 0; one < places_.size(); ++one) {
        for (std::size_t other = 0; other < one; ++other) {
          moved = Trade(trial, places_[one], places_[other]) || moved;
        }
      }
    }
  }

  bool Trade(Trial& trial, const Place& one, const Place& other) {
    if (one.stage != other.stage || left_ == 0) return false;
    StageKeeping keeping = trial.keeping;
    for (std::uint32_t at = 0; at < share(); ++at) {
      const std::vector<ModuleKeeping>& before = trial.keeping[one.stage][at];
      Put(keeping, {one.stage, one.module, at}, before[other.module]);
      Put(keeping, {one.stage, other.module, at}, before[one.module]);
    }
    return keeping != trial.keeping && Accept(trial, std::move(keeping));
  }

  bool Exchange(Trial& trial, const Place& place) {
    bool moved = false;
    for (const ModuleKeeping& option : OptionsAt(trial.keeping, place)) {
      StageKeeping keeping = trial.keeping;
      Put(keeping, place, option);
      if (keeping == trial.keeping || left_ == 0) continue;
      moved = Accept(trial, std::move(keeping)) || moved;
    }
    return moved;
  }

  // Whether that is better, and if so, takes it.
  bool Accept(Trial& trial, StageKeeping keeping) {
    --left_;
    Result<Trial> next = Try(std::move(keeping));
    if (!next.has_value() || !next->fits || !Shorter(*next, trial)) return false;
    trial = *std::move(next);
    return true;
  }

  // At equal times what moves fewer bytes, so that keeping is preferred to no use.
  bool Shorter(const Trial& one, const Trial& other) const {
    if (one.simulation.step_ns != other.simulation.step_ns) {
      return one.simulation.step_ns < other.simulation.step_ns;
    }
    return MovedBytes(one.keeping) < MovedBytes(other.keeping);
  }

  std::uint64_t MovedBytes(const StageKeeping& keeping) const {
    std::uint64_t bytes = 0;
    for (std::uint32_t stage = 0; stage < keeping.size(); ++stage) {
      for (const std::vector<ModuleKeeping>& modules : keeping[stage]) {
        for (std::size_t at = 0; at < modules.size(); ++at) {
          const StageModule& cost = Cost(stage).modules[at];
          if (modules[at].graph != Keeping::kKeep) bytes += cost.graph_bytes;
          if (modules[at].output != Keeping::kKeep) bytes += cost.output_bytes;
        }
      }
    }
    return bytes;
  }

  const MemoryRequest& request_;
  std::size_t left_ = 0;  // trials, with the present means
  std::uint64_t least_bytes_ = 0;  // of the fullest rank, of what was tried
  Means means_;
  std::vector<Place> places_;
};

// What one stage moves, as "swaps 12.000 MB of 3 modules".
std::string ExplainStage(const StepPlan& plan, std::uint32_t stage, const RankKeeping& keeping) {
  struct Sum {
    std::uint64_t bytes = 0;
    std::uint64_t ns = 0;
    std::vector<bool> modules;
    std::size_t Modules() const {
      return static_cast<std::size_t>(std::ranges::count(modules, true));
    }
  };
  const StageCost& cost = plan.stages.stages[stage];
  std::array<Sum, 2> sums;  // swapped, recomputed
  for (Sum& sum : sums) sum.modules.resize(cost.modules.size());
  for (const std::vector<ModuleKeeping>& modules : keeping) {
    for (std::size_t at = 0; at < modules.size(); ++at) {
      const auto add = [&](Keeping wanted, std::uint64_t bytes) {
        if (wanted == Keeping::kKeep) return;
        Sum& sum = sums[wanted == Keeping::kSwap ? 0 : 1];
        sum.bytes += bytes;
        sum.ns += cost.modules[at].forward_ns;
        sum.modules[at] = true;
      };
      add(modules[at].graph, cost.modules[at].graph_bytes);
      add(modules[at].output, cost.modules[at].output_bytes);
    }
  }
  std::string text;
  if (sums[0].bytes > 0) {
    text += fmt::format("swaps {} of {} modules", Megabytes(sums[0].bytes), sums[0].Modules());
  }
  if (sums[1].bytes > 0) {
    text += fmt::format("{}recomputes {} of {} modules in {}", text.empty() ? "" : ", ",
                        Megabytes(sums[1].bytes), sums[1].Modules(), Milliseconds(sums[1].ns));
  }
  return text.empty() ? "keeps all" : text;
}

std::string Explain(const MemoryRequest& request, const Trial& kept, const Trial& chosen) {
  std::string text = fmt::format("budget {}: step {}, {} when all is kept",
                                 Megabytes(request.budget_bytes),
                                 Milliseconds(chosen.simulation.step_ns),
                                 Milliseconds(kept.simulation.step_ns));
  for (std::uint32_t stage = 0; stage < chosen.keeping.size(); ++stage) {
    const std::uint32_t rank = request.plan.layout.RankOf(0, stage);
    fmt::format_to(std::back_inserter(text),
                   "\nstage {}: {} a step; peak {} instead of {}, waits for swaps {}", stage,
                   ExplainStage(request.plan, stage, chosen.keeping[stage]),
                   Megabytes(chosen.facts.peak_bytes[rank]),
                   Megabytes(kept.facts.peak_bytes[rank]),
                   Milliseconds(chosen.simulation.ranks[rank].wait_swap_ns));
  }
  return text;
}

}  // namespace

Result<MemoryChoice> PlanMemory(const MemoryRequest& request) {
  FOREBAY_TRY(CheckPlan(request.plan, {}));
  MemorySearch search(request);
  FOREBAY_ASSIGN(Trial chosen, search.Run());
  FOREBAY_ASSIGN(const Trial kept, search.Try(search.Everywhere({})));
  MemoryChoice choice;
  FOREBAY_ASSIGN(choice.plan, search.Rewrite(chosen.keeping));
  choice.keeping = search.ByRank(chosen.keeping);
  choice.reason = Explain(request, kept, chosen);
  choice.facts = std::move(chosen.facts);
  choice.simulation = std::move(chosen.simulation);
  return choice;
}

}  // namespace forebay::train
