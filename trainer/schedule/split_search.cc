// Dynamic programming over (stage, end of the stage): the best way to give the first modules to the
// first stages. The best is the smallest time of the slowest stage, then the fewest bytes sent;
// stages that exceed the budget are left out. Figures of all contiguous pieces are computed
// beforehand, which costs the square of the number of modules times their length and is small for
// real models.
#include "trainer/schedule/split_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "trainer/comm/collectives.h"

namespace forebay::train {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// Figures of the stage that has the modules [begin, end).
struct Piece {
  std::uint64_t ns = 0;
  std::uint64_t crossing_bytes = 0;  // arriving, per micro-batch
  std::uint64_t parameter_bytes = 0;
  std::uint64_t saved_bytes = 0;
  std::uint64_t largest_bytes = 0;  // saved by one module, with its scratch
  std::uint64_t scratch_bytes = 0;  // of one module at a time
};

// The figures of every contiguous piece of the chain, computed once: the search looks at each many
// times.
class Pieces {
 public:
  Pieces(const ModelGraph& graph, const SplitCosts& costs)
      : count_(static_cast<std::uint32_t>(graph.modules.size())), pieces_(count_ * (count_ + 1)) {
    for (std::uint32_t begin = 0; begin < count_; ++begin) {
      for (std::uint32_t end = begin + 1; end <= count_; ++end) {
        At(begin, end) = Measure(graph, costs, begin, end);
      }
    }
  }

  Piece& At(std::uint32_t begin, std::uint32_t end) {
    return pieces_[begin * (count_ + 1) + end];
  }

 private:
  // Time and bytes of the stage that would have these modules.
  static Piece Measure(const ModelGraph& graph, const SplitCosts& costs, std::uint32_t begin,
                       std::uint32_t end) {
    Piece piece;
    for (std::uint32_t module = begin; module < end; ++module) {
      const ModuleProfile& profile = graph.modules[module];
      // A pipeline's steady state needs one forward and one backward pass per micro-batch.
      piece.ns += profile.forward_ns + profile.backward_ns;
      piece.parameter_bytes += profile.parameter_bytes;
      piece.saved_bytes += profile.saved_bytes;
      const std::uint64_t scratch =
          std::max(profile.forward_scratch_bytes, profile.backward_scratch_bytes);
      piece.scratch_bytes = std::max(piece.scratch_bytes, scratch);
      piece.largest_bytes = std::max(piece.largest_bytes, profile.saved_bytes + scratch);
    }
    // A tensor that arrives is received once. One that leaves is counted once too, though it may
    // go to several stages: which, is not known yet.
    // Producers of the tensors that cross into this piece, and out of it.
    std::set<std::uint32_t> arriving;
    std::set<std::uint32_t> leaving;
    if (begin > 0) arriving.insert(begin - 1);
    if (end < graph.modules.size()) leaving.insert(end - 1);
    for (const SkipEdge& skip : graph.skips) {
      const bool from_inside = skip.from >= begin && skip.from < end;
      const bool to_inside = skip.to >= begin && skip.to < end;
      if (to_inside && skip.from < begin) arriving.insert(skip.from);
      if (from_inside && skip.to >= end) leaving.insert(skip.from);
    }
    std::uint64_t bytes = 0;
    for (const std::uint32_t module : arriving) {
      piece.crossing_bytes += graph.modules[module].output_bytes;
    }
    bytes = piece.crossing_bytes;
    for (const std::uint32_t module : leaving) bytes += graph.modules[module].output_bytes;
    // Each crosses twice: the activation forward, its gradient backward.
    piece.ns += 2 * (static_cast<std::uint64_t>(costs.message_ns_per_byte *
                                                static_cast<double>(bytes)) +
                     costs.message_ns * (arriving.size() + leaving.size()));
    return piece;
  }

  std::uint32_t count_;
  std::vector<Piece> pieces_;
};

// `in_flight`: how many micro-batches the stage holds at once.
std::uint64_t BytesOf(const Piece& piece, const SplitCosts& costs, std::uint64_t in_flight) {
  // Memory of the passes and memory of the reduction are not needed at the same time.
  std::uint64_t passes = piece.crossing_bytes * in_flight;
  passes += costs.moves_saved ? piece.largest_bytes
                              : piece.saved_bytes * in_flight + piece.scratch_bytes;
  const std::uint64_t reductions =
      ArrivingElements(piece.parameter_bytes / sizeof(float), costs.replicas) * sizeof(float);
  return piece.parameter_bytes * costs.parameter_copies + std::max(passes, reductions);
}

// The best way to give modules [0, end) to the first stages.
struct Best {
  std::uint64_t slowest_ns = kNever;
  std::uint64_t sent_bytes = 0;
  std::uint64_t fullest_bytes = kNever;
  std::uint32_t begin = 0;  // of the last of these stages

  // By speed, or, to tell the smallest budget, by memory.
  bool Beats(const Best& other, bool by_memory) const {
    if (by_memory) return fullest_bytes < other.fullest_bytes;
    return std::pair(slowest_ns, sent_bytes) < std::pair(other.slowest_ns, other.sent_bytes);
  }
};

class Search {
 public:
  Search(const ModelGraph& graph, std::uint32_t stages, const SplitCosts& costs)
      : modules_(static_cast<std::uint32_t>(graph.modules.size())),
        stages_(stages),
        costs_(costs),
        pieces_(graph, costs) {
    // How much a stage holds depends on its place: under 1F1B the first stages are furthest ahead.
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      held_.push_back(MicroBatchesHeld(
          *costs.schedule,
          {.stage = stage, .stages = stages, .micro_batches = costs.micro_batches}));
    }
  }

  // best[stage][end]; best[stages - 1][modules] is the whole.
  std::vector<std::vector<Best>> Run(bool by_memory) {
    std::vector<std::vector<Best>> best(stages_, std::vector<Best>(modules_ + 1));
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      // Every stage has at least one module, also those that are still to come.
      for (std::uint32_t end = stage + 1; end + (stages_ - 1 - stage) <= modules_; ++end) {
        const std::uint32_t from = stage == 0 ? 0 : stage;
        const std::uint32_t until = stage == 0 ? 1 : end;
        for (std::uint32_t begin = from; begin < until; ++begin) {
          const Best before = stage == 0 ? Best{0, 0, 0, 0} : best[stage - 1][begin];
          Consider(before, stage, begin, end, by_memory, best[stage][end]);
        }
      }
    }
    return best;
  }

  std::uint64_t NsOf(std::uint32_t begin, std::uint32_t end) { return pieces_.At(begin, end).ns; }

 private:
  // Extends the best cut of the modules before by one stage, and keeps it if it is better.
  void Consider(const Best& before, std::uint32_t stage, std::uint32_t begin, std::uint32_t end,
                bool by_memory, Best& best) {
    if (before.slowest_ns == kNever) return;
    const Piece& piece = pieces_.At(begin, end);
    const std::uint64_t bytes = BytesOf(piece, costs_, held_[stage]);
    if (!by_memory && costs_.budget_bytes != 0 && bytes > costs_.budget_bytes) return;
    const Best candidate{.slowest_ns = std::max(before.slowest_ns, piece.ns),
                         .sent_bytes = before.sent_bytes + piece.crossing_bytes,
                         .fullest_bytes = std::max(before.fullest_bytes, bytes),
                         .begin = begin};
    if (candidate.Beats(best, by_memory)) best = candidate;
  }

  std::uint32_t modules_;
  std::uint32_t stages_;
  const SplitCosts& costs_;
  Pieces pieces_;
  std::vector<std::uint32_t> held_;  // micro-batches, by stage
};

// Follows the entries from the last stage to the first: each says where its stage begins.
StageSplit SplitOf(const std::vector<std::vector<Best>>& best, std::uint32_t modules) {
  StageSplit split;
  split.begins.resize(best.size());
  std::uint32_t end = modules;
  for (std::size_t stage = best.size(); stage-- > 0;) {
    split.begins[stage] = best[stage][end].begin;
    end = split.begins[stage];
  }
  return split;
}

// Every stage needs a module, or it would have nothing to compute.
Status CheckStages(const ModelGraph& graph, std::uint32_t stages) {
  FOREBAY_TRY(CheckGraph(graph));
  if (stages > 0 && stages <= graph.modules.size()) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} stages of a model of {} modules", stages, graph.modules.size()));
}

}  // namespace

Result<SplitChoice> FindSplit(const ModelGraph& graph, std::uint32_t stages,
                              const SplitCosts& costs) {
  FOREBAY_TRY(CheckStages(graph, stages));
  const auto modules = static_cast<std::uint32_t>(graph.modules.size());
  Search search(graph, stages, costs);
  const std::vector<std::vector<Best>> best = search.Run(false);
  if (best[stages - 1][modules].slowest_ns == kNever) {
    // A second search, for the message: the user needs to know which budget would do.
    const std::uint64_t least = search.Run(true)[stages - 1][modules].fullest_bytes;
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("no cut into {} stages keeps each within {} bytes; the smallest "
                             "budget that does is {} bytes",
                             stages, costs.budget_bytes, least));
  }
  SplitChoice choice;
  choice.slowest_ns = best[stages - 1][modules].slowest_ns;
  choice.split = SplitOf(best, modules);
  // Several stages may be equally slow; the first of them is named.
  std::uint32_t end = modules;
  for (std::uint32_t stage = stages; stage-- > 0;) {
    const std::uint32_t begin = choice.split.begins[stage];
    if (search.NsOf(begin, end) == choice.slowest_ns) choice.slowest_stage = stage;
    end = begin;
  }
  return choice;
}

Result<std::vector<StageSplit>> FindSplitsWithin(const ModelGraph& graph, std::uint32_t stages,
                                                 SplitCosts costs) {
  FOREBAY_TRY(CheckStages(graph, stages));
  const auto modules = static_cast<std::uint32_t>(graph.modules.size());
  std::vector<StageSplit> splits;
  const auto add = [&](const std::vector<std::vector<Best>>& best) {
    if (best[stages - 1][modules].slowest_ns == kNever) return;  // none is within the budget
    StageSplit split = SplitOf(best, modules);
    if (std::ranges::find(splits, split.begins, &StageSplit::begins) == splits.end()) {
      splits.push_back(std::move(split));
    }
  };
  // First as if everything were kept, then as if all that is saved were moved away, then for the
  // least memory. The caller tries the splits in this order.
  costs.moves_saved = false;
  add(Search(graph, stages, costs).Run(false));
  costs.moves_saved = true;
  Search moved(graph, stages, costs);
  add(moved.Run(false));
  add(moved.Run(true));
  return splits;
}

}  // namespace forebay::train
