// A local search over choices (keep, swap or recompute, for each module and micro-batch of a
// stage). A choice is judged by rewriting the plan of one replica, executing it for its peak bytes,
// and simulating it for its time. The search starts from several points: a greedy choice by time
// per saved byte, and each option applied everywhere. From each that fits the budget it exchanges
// single choices as long as the step gets shorter. The work is bounded by a number of executed
// instructions, the same on every machine, so that all ranks choose alike.
#include "trainer/schedule/memory/memory_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/schedule/memory/one_replica.h"

namespace forebay::train {
namespace {

// Times are foreseen to within some percent: both means together must promise that much more than
// one of them.
constexpr double kMixingGain = 1.01;

// Computations of modules beside which a swap may come back.
constexpr std::array<std::uint32_t, 4> kAhead = {1, 2, 4, 8};

// By stage, as all of its replicas do the same.
using StageKeeping = std::vector<RankKeeping>;

// A choice that was tried, with everything that was found about it.
struct Trial {
  StageKeeping keeping;
  PlanFacts facts;  // by stage: of one replica
  std::vector<std::uint64_t> moving_ns;  // by stage: computes again, and waits for swaps
  std::uint64_t step_ns = 0;
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

// What one option of a module is good for, when nothing else of its stage is moved.
struct Candidate {
  std::uint32_t module = 0;  // of the stage
  ModuleKeeping keeping;
  double ns_per_byte = 0;
};

// Figures in the log, with enough digits to tell close choices apart.
std::string Megabytes(std::uint64_t bytes) {
  return fmt::format("{:.3f} MB", static_cast<double>(bytes) * 1e-6);
}

std::string Milliseconds(std::uint64_t ns) {
  return fmt::format("{:.3f} ms", static_cast<double>(ns) * 1e-6);
}

// What a rank moves changes neither messages nor other ranks' bytes: so stages are tried side by
// side, each with a choice of its own in one trial, wherever the time of a stage alone counts.
class MemorySearch {
 public:
  explicit MemorySearch(const MemoryRequest& request)
      : request_(request), base_(OneReplica(request.plan)), tried_(base_) {
    for (std::uint32_t stage = 0; stage < stages(); ++stage) {
      const auto modules = static_cast<std::uint32_t>(Cost(stage).modules.size());
      most_modules_ = std::max(most_modules_, modules);
      for (std::uint32_t module = 0; module < modules; ++module) {
        places_.push_back({.stage = stage, .module = module});
      }
    }
    tried_keeping_ = Everywhere({});
  }

  // The best choice within the budget: keep everything if that fits, else the best that
  // recomputing, swapping or both together come to.
  Result<Trial> Run() {
    // If everything fits, nothing is moved.
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
    // The best of the two means that are used alone.
    const auto pure = std::ranges::min_element(alone, Better);
    if (MayUse(kBoth)) {
      FOREBAY_ASSIGN(std::optional<Trial> mixed, RunWith(kBoth, kept, alone));
      // Two means that win by less than the simulator's error are not worth their complexity.
      if (mixed && (alone.empty() || IsWorthMixing(*mixed, *pure))) return *std::move(mixed);
    }
    if (!alone.empty()) return std::move(*pure);
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("the budget of {} bytes a rank is too small: with all that may be "
                             "moved away the fullest rank still needs {}; more stages or smaller "
                             "micro-batches need less",
                             request_.budget_bytes, least_bytes_));
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
    for (std::uint32_t stage = 0; stage < stages(); ++stage) {
      all.emplace_back(share(), std::vector<ModuleKeeping>(Cost(stage).modules.size()));
    }
    for (const Place& place : places_) Put(all, place, keeping);
    return all;
  }

  std::uint64_t plans() const { return plans_; }
  std::uint64_t instructions() const { return instructions_; }

 private:
  std::uint32_t stages() const { return base_.layout.stages; }
  const StageCost& Cost(std::uint32_t stage) const { return base_.stages.stages[stage]; }
  std::uint32_t share() const { return base_.micro_batches; }

  // The best from these trials on, from the greedy choice, and from all that the means allow.
  Result<std::optional<Trial>> RunWith(const Means& means, const Trial& kept,
                                       std::vector<Trial> trials) {
    means_ = means;
    // A third of the work for each of: recomputing alone, swapping alone, both.
    left_ = request_.most_instructions / 3;
    FOREBAY_ASSIGN(Trial greedy, Greedy(kept));
    trials.push_back(std::move(greedy));
    for (const ModuleKeeping& option : Options()) {
      if (!option.moves()) continue;
      FOREBAY_ASSIGN(Trial trial, TryEverywhere(option));
      trials.push_back(std::move(trial));
    }
    std::optional<Trial> best;
    for (Trial& trial : trials) {
      // For the message, if nothing fits: the smallest budget that would do.
      least_bytes_ = std::min(least_bytes_, trial.PeakBytes());
      if (!trial.fits) continue;
      Improve(trial);
      if (!best || Better(trial, *best)) best = std::move(trial);
    }
    return best;
  }

  // Both means together have the options of each: those are tried already.
  Result<Trial> TryEverywhere(const ModuleKeeping& option) {
    const auto known =
        std::ranges::find(everywhere_, option, &std::pair<ModuleKeeping, Trial>::first);
    if (known != everywhere_.end()) return known->second;
    FOREBAY_ASSIGN(Trial trial, Try(Everywhere(option)));
    everywhere_.emplace_back(option, trial);
    return trial;
  }

  // Judges a choice by the plan that it leads to: peak bytes by executing it, time by simulating
  // it.
  Result<Trial> Try(StageKeeping keeping) {
    for (std::uint32_t stage = 0; stage < stages(); ++stage) {
      // Only the stages whose choice has changed are rewritten.
      if (keeping[stage] == tried_keeping_[stage]) continue;
      tried_.programs[stage] = MovedProgram(base_, stage, keeping[stage]);
      tried_keeping_[stage] = keeping[stage];
    }
    Count();
    Trial trial;
    FOREBAY_ASSIGN(trial.facts, MeasureBytes(tried_));
    FOREBAY_ASSIGN(const Simulation simulation,
                   SimulatePlan(tried_, request_.costs, SimulationDetail::kTimes));
    trial.step_ns = simulation.step_ns;
    for (const RankTimes& times : simulation.ranks) {
      trial.moving_ns.push_back(times.recompute_ns + times.wait_swap_ns);
    }
    trial.keeping = std::move(keeping);
    // Every stage has to fit.
    trial.fits = true;
    for (std::uint32_t stage = 0; stage < stages(); ++stage) {
      trial.fits = trial.fits && Fits(trial.facts, stage);
    }
    return trial;
  }

  // A plan's work is its instructions, whatever machine it is tried on: all ranks stop alike.
  void Count() {
    std::uint64_t instructions = 0;
    for (const RankProgram& program : tried_.programs) {
      instructions += program.instructions.size();
    }
    ++plans_;
    instructions_ += instructions;
    left_ -= std::min(left_, instructions);
  }

  bool Fits(const PlanFacts& facts, std::uint32_t stage) const {
    return facts.peak_bytes[stage] <= request_.budget_bytes &&
           (request_.host_budget_bytes == 0 ||
            facts.peak_host_bytes[stage] <= request_.host_budget_bytes);
  }

  // What may be done with one module under the present means.
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

  // The policy of the user, and what LibTorch can do, limit the means.
  bool MayUse(const Means& means) const {
    return (!means.swaps || request_.may_swap) && (!means.recomputes || request_.may_recompute);
  }

  // Time first; of equally fast choices the one that needs less memory.
  static bool Better(const Trial& one, const Trial& other) {
    if (one.step_ns != other.step_ns) return one.step_ns < other.step_ns;
    return one.PeakBytes() < other.PeakBytes();
  }

  static bool IsWorthMixing(const Trial& mixed, const Trial& pure) {
    return static_cast<double>(mixed.step_ns) * kMixingGain < static_cast<double>(pure.step_ns);
  }

  // Moves one module of a stage after the other until the stage fits, those first that cost least
  // time for each byte of the peak they save when they are moved alone.
  Result<Trial> Greedy(const Trial& kept) {
    FOREBAY_ASSIGN(const auto candidates, Candidates(kept));
    std::vector<std::size_t> next(stages());
    Trial trial = kept;
    while (true) {
      StageKeeping keeping = trial.keeping;
      for (std::uint32_t stage = 0; stage < stages(); ++stage) {
        if (!Fits(trial.facts, stage)) MoveNext(candidates[stage], next[stage], stage, keeping);
      }
      if (keeping == trial.keeping) break;
      FOREBAY_ASSIGN(const Trial moved, Try(std::move(keeping)));
      for (std::uint32_t stage = 0; stage < stages(); ++stage) {
        // The module is not in memory when the peak is, so moving it would only cost time.
        if (SavedBytes(trial, moved, stage) == 0) continue;
        trial.keeping[stage] = moved.keeping[stage];
        trial.facts.peak_bytes[stage] = moved.facts.peak_bytes[stage];
        trial.facts.peak_host_bytes[stage] = moved.facts.peak_host_bytes[stage];
      }
    }
    // The stages' choices were accepted one by one: their time together is not known yet.
    return Try(std::move(trial.keeping));
  }

  // Takes the stage's next candidate of a module that stays as yet, if there is one.
  void MoveNext(const std::vector<Candidate>& candidates, std::size_t& next, std::uint32_t stage,
                StageKeeping& keeping) const {
    while (next < candidates.size()) {
      const Candidate& candidate = candidates[next++];
      if (keeping[stage][0][candidate.module].moves()) continue;
      Put(keeping, {.stage = stage, .module = candidate.module}, candidate.keeping);
      return;
    }
  }

  // By stage, the best first: of each module every option alone, in all stages at once.
  Result<std::vector<std::vector<Candidate>>> Candidates(const Trial& kept) {
    std::vector<std::vector<Candidate>> candidates(stages());
    for (std::uint32_t module = 0; module < most_modules_; ++module) {
      for (const ModuleKeeping& option : Options()) {
        if (!option.moves() || left_ == 0) continue;
        StageKeeping keeping = kept.keeping;
        for (std::uint32_t stage = 0; stage < stages(); ++stage) {
          if (module >= Cost(stage).modules.size()) continue;
          Put(keeping, {.stage = stage, .module = module}, option);
        }
        // Too small to be swapped, in every stage.
        if (keeping == kept.keeping) continue;
        FOREBAY_ASSIGN(const Trial trial, Try(std::move(keeping)));
        for (std::uint32_t stage = 0; stage < stages(); ++stage) {
          const std::uint64_t saved = SavedBytes(kept, trial, stage);
          if (saved == 0) continue;
          const auto added = static_cast<double>(trial.moving_ns[stage]);
          candidates[stage].push_back({module, option, added / static_cast<double>(saved)});
        }
      }
    }
    for (std::vector<Candidate>& of_stage : candidates) {
      // Stable, so that equal candidates have one order on every rank.
      std::ranges::stable_sort(of_stage, {}, &Candidate::ns_per_byte);
    }
    return candidates;
  }

  // What a choice takes off the peak of a stage; 0 if the peak rises.
  static std::uint64_t SavedBytes(const Trial& before, const Trial& after, std::uint32_t stage) {
    const std::uint64_t had = before.facts.peak_bytes[stage];
    return had - std::min(had, after.facts.peak_bytes[stage]);
  }

  // Exchanges single choices as long as the step gets shorter: first of all micro-batches of a
  // module, then of one, then those of two modules for each other's. Stages that lose most time
  // come first, as the work may not suffice for all.
  void Improve(Trial& trial) {
    bool moved = true;
    while (moved && left_ > 0) {
      moved = false;
      std::ranges::stable_sort(places_, std::greater(), [&](const Place& place) {
        return trial.moving_ns[place.stage];
      });
      for (const Place& place : places_) moved = Exchange(trial, place) || moved;
      for (const Place& place : places_) {
        for (std::uint32_t at = 0; at < share() && share() > 1; ++at) {
          Place one = place;
          one.micro_batch = at;
          moved = Exchange(trial, one) || moved;
        }
      }
      for (std::size_t one = 0; one < places_.size() && left_ > 0; ++one) {
        for (std::size_t other = 0; other < one; ++other) {
          moved = Trade(trial, places_[one], places_[other]) || moved;
        }
      }
    }
  }

  // Exchanges the choices of two modules: a step from one local optimum to another that single
  // changes would not find, because both intermediate choices are worse or do not fit.
  bool Trade(Trial& trial, const Place& one, const Place& other) {
    if (one.stage != other.stage || left_ == 0) return false;
    StageKeeping keeping = trial.keeping;
    for (std::uint32_t at = 0; at < share(); ++at) {
      // Two modules of one stage exchange their choices.
      const std::vector<ModuleKeeping>& before = trial.keeping[one.stage][at];
      Put(keeping, {one.stage, one.module, at}, before[other.module]);
      Put(keeping, {one.stage, other.module, at}, before[one.module]);
    }
    return keeping != trial.keeping && Accept(trial, std::move(keeping));
  }

  // Tries every option for one place, and takes each that is better.
  bool Exchange(Trial& trial, const Place& place) {
    bool moved = false;
    if (left_ == 0) return moved;
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
    Result<Trial> next = Try(std::move(keeping));
    if (!next.has_value() || !next->fits || !Shorter(*next, trial)) return false;
    trial = *std::move(next);
    return true;
  }

  // At equal times what moves fewer bytes, so that keeping is preferred to no use.
  bool Shorter(const Trial& one, const Trial& other) const {
    if (one.step_ns != other.step_ns) return one.step_ns < other.step_ns;
    return MovedBytes(one.keeping) < MovedBytes(other.keeping);
  }

  // Recomputed and swapped bytes count alike.
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
  StepPlan base_;   // one replica's, nothing moved
  StepPlan tried_;  // rewritten by tried_keeping_
  StageKeeping tried_keeping_;
  std::uint64_t left_ = 0;  // instructions, with the present means
  std::uint64_t plans_ = 0;
  std::uint64_t instructions_ = 0;
  std::uint64_t least_bytes_ = 0;  // of the fullest rank, of what was tried
  Means means_;
  std::uint32_t most_modules_ = 0;  // of a stage
  std::vector<std::pair<ModuleKeeping, Trial>> everywhere_;  // tried with one option for all
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

// A plan with what is proved and foreseen of it.
struct Planned {
  PlanFacts facts;
  Simulation simulation;
};

Result<Planned> CheckAndSimulate(const StepPlan& plan, const SimulationCosts& costs) {
  Planned planned;
  FOREBAY_ASSIGN(planned.facts, CheckPlan(plan, {}));
  FOREBAY_ASSIGN(planned.simulation, SimulatePlan(plan, costs));
  return planned;
}

// The reasons, as lines for the log: what the budget costs, and what each stage moves.
std::string Explain(const MemoryRequest& request, const Planned& kept, const Planned& chosen,
                    const StageKeeping& keeping) {
  std::string text = fmt::format("budget {}: step {}, {} when all is kept",
                                 Megabytes(request.budget_bytes),
                                 Milliseconds(chosen.simulation.step_ns),
                                 Milliseconds(kept.simulation.step_ns));
  for (std::uint32_t stage = 0; stage < keeping.size(); ++stage) {
    const std::uint32_t rank = request.plan.layout.RankOf(0, stage);
    fmt::format_to(std::back_inserter(text),
                   "\nstage {}: {} a step; peak {} instead of {}, waits for swaps {}", stage,
                   ExplainStage(request.plan, stage, keeping[stage]),
                   Megabytes(chosen.facts.peak_bytes[rank]),
                   Megabytes(kept.facts.peak_bytes[rank]),
                   Milliseconds(chosen.simulation.ranks[rank].wait_swap_ns));
  }
  return text;
}

}  // namespace

// Searches on one replica, then builds, checks and simulates the plan of all ranks with what was
// found.
Result<MemoryChoice> PlanMemory(const MemoryRequest& request) {
  FOREBAY_ASSIGN(const Planned kept, CheckAndSimulate(request.plan, request.costs));
  MemorySearch search(request);
  FOREBAY_ASSIGN(const Trial found, search.Run());
  MemoryChoice choice;
  choice.keeping = search.ByRank(found.keeping);
  FOREBAY_ASSIGN(choice.plan, MoveSaved(request.plan, choice.keeping));
  FOREBAY_ASSIGN(Planned chosen, CheckAndSimulate(choice.plan, request.costs));
  choice.reason = Explain(request, kept, chosen, found.keeping);
  choice.facts = std::move(chosen.facts);
  choice.simulation = std::move(chosen.simulation);
  choice.tried_plans = search.plans();
  choice.tried_instructions = search.instructions();
  return choice;
}

}  // namespace forebay::train
