// Cuts the chain of modules into stages, and sums up what each stage costs. A tensor whose producer
// and user are in different stages becomes an edge, which costs a message. The subtle part is
// scratch memory: what a module needs while it runs was measured with everything else in place, and
// from it is subtracted what the plan counts as buffers of its own.
#include "trainer/schedule/model_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace forebay::train {
namespace {

std::vector<std::uint32_t> StageOfModules(const StageSplit& split, std::uint32_t modules) {
  std::vector<std::uint32_t> stage_of(modules);
  std::uint32_t stage = 0;
  for (std::uint32_t module = 0; module < modules; ++module) {
    // The last stage that begins at or before the module.
    while (stage + 1 < split.stages() && split.begins[stage + 1] <= module) ++stage;
    stage_of[module] = stage;
  }
  return stage_of;
}

// A split comes from a configuration, so it may be anything.
Status CheckSplit(const StageSplit& split, std::size_t modules) {
  if (split.begins.empty() || split.begins.front() != 0) {
    return Error(ErrorCode::kInvalidArgument, "a split begins with module 0");
  }
  for (std::size_t stage = 0; stage < split.begins.size(); ++stage) {
    const std::size_t end =
        stage + 1 < split.begins.size() ? split.begins[stage + 1] : modules;
    if (end > modules || split.begins[stage] >= end) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("stage {} of the split has no modules: it begins at {} and ends "
                               "at {} of {}",
                               stage, split.begins[stage], end, modules));
    }
  }
  return {};
}

// Who uses the output of each module, ascending: its successor and the ends of its skips.
std::vector<std::vector<std::uint32_t>> UsersOf(const ModelGraph& graph) {
  std::vector<std::vector<std::uint32_t>> users(graph.modules.size());
  for (std::uint32_t module = 1; module < graph.modules.size(); ++module) {
    users[module - 1].push_back(module);
  }
  for (const SkipEdge& skip : graph.skips) users[skip.from].push_back(skip.to);
  for (std::vector<std::uint32_t>& list : users) std::ranges::sort(list);
  return users;
}

std::vector<std::uint32_t> SourcesOf(const ModelGraph& graph, std::uint32_t module) {
  std::vector<std::uint32_t> sources;
  if (module > 0) sources.push_back(module - 1);
  for (const SkipEdge& skip : graph.skips) {
    if (skip.to == module) sources.push_back(skip.from);
  }
  // Ascending, as inputs are listed everywhere.
  std::ranges::sort(sources);
  return sources;
}

// One edge for each producer and stage that uses its output; one for each user where there are
// three or more.
std::vector<StageEdge> CrossingEdges(const ModelGraph& graph,
                                     const std::vector<std::uint32_t>& stage_of) {
  const std::vector<std::vector<std::uint32_t>> users = UsersOf(graph);
  // By stages and module; apart by user where there are three or more.
  std::map<std::array<std::uint32_t, 4>, StageEdge> edges;
  for (std::uint32_t module = 0; module < users.size(); ++module) {
    for (const std::uint32_t user : users[module]) {
      if (stage_of[user] == stage_of[module]) continue;
      // With two users, one message to a later stage is enough, because a sum of two gradients has
      // one order. With three or more each user sends its gradient by itself, so that they are
      // added last user first.
      const std::uint32_t apart = users[module].size() >= 3 ? user : 0;
      StageEdge& edge = edges[{stage_of[module], stage_of[user], module, apart}];
      edge.from_stage = stage_of[module];
      edge.to_stage = stage_of[user];
      edge.from_module = module;
      edge.bytes = graph.modules[module].output_bytes;
      edge.to_modules.push_back(user);
    }
  }
  std::vector<StageEdge> ordered;
  for (auto& [key, edge] : edges) ordered.push_back(std::move(edge));
  return ordered;
}

// Not below 0: measured figures do not always add up.
std::uint64_t Less(std::uint64_t bytes, std::uint64_t subtracted) {
  return bytes - std::min(bytes, subtracted);
}

// Gradients of outputs that lie on a stage while `at` goes backward: those that users in the stage
// have made, of modules before it and of its own. The gradients that arrived are buffers; two of
// one output are summed to a tensor of its own.
std::uint64_t HeldGradients(const StageCost& stage, const std::vector<StageEdge>& edges,
                            std::uint32_t at) {
  std::uint64_t bytes = 0;
  for (std::uint32_t source = stage.first_module; source <= at; ++source) {
    const auto arrives = std::ranges::count(edges, source, &StageEdge::from_module);
    // Two gradients that arrived for one output are added to a new tensor.
    bool made = arrives > 1;
    for (std::uint32_t user = at + 1; user < stage.EndModule() && !made; ++user) {
      const std::vector<std::uint32_t>& sources = stage.Module(user).sources;
      made = std::ranges::find(sources, source) != sources.end();
    }
    if (made) bytes += stage.Module(source).output_bytes;
  }
  return bytes;
}

// Gradients that leave the stage and come to life as `at` goes backward. What it makes is scratch
// as measured and a buffer in the plan.
std::uint64_t LeavingGradients(std::uint32_t stage, const std::vector<StageEdge>& edges,
                               std::uint32_t at) {
  std::uint64_t bytes = 0;
  for (const StageEdge& edge : edges) {
    if (edge.to_stage == stage && edge.to_modules.back() == at) bytes += edge.bytes;
  }
  return bytes;
}

// Fills in the scratch memory of the stage and of its modules, for passes over the whole stage and
// for single modules.
void AddScratch(StageGraph& cut, std::uint32_t index) {
  StageCost& stage = cut.stages[index];
  // Going from the last module to the first, as a backward pass does.
  std::uint64_t later = 0;    // graphs and outputs of the modules behind
  std::uint64_t freed = 0;    // their graphs
  std::uint64_t leaving = 0;  // gradients that leave, of this module and those before
  for (const StageEdge& edge : cut.edges) {
    if (edge.to_stage == index) leaving += edge.bytes;
  }
  for (std::uint32_t at = stage.EndModule(); at-- > stage.first_module;) {
    StageModule& module = stage.modules[at - stage.first_module];
    const std::uint64_t backward =
        module.backward_scratch_bytes + HeldGradients(stage, cut.edges, at);
    const std::uint64_t own = LeavingGradients(index, cut.edges, at);
    module.backward_scratch_bytes = Less(backward, own);
    stage.backward_scratch_bytes =
        std::max(stage.backward_scratch_bytes, Less(backward, leaving + freed));
    stage.forward_scratch_bytes =
        std::max(stage.forward_scratch_bytes, Less(module.forward_scratch_bytes, later));
    leaving -= own;
    freed += module.graph_bytes;
    later += module.graph_bytes + module.output_bytes;
  }
}

}  // namespace

// Skips lead forward over at least one module: an edge to the next module is the chain's own.
Status CheckGraph(const ModelGraph& graph) {
  if (graph.modules.empty()) {
    return Error(ErrorCode::kInvalidArgument, "the model has no modules");
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (const SkipEdge& skip : graph.skips) {
    if (skip.to >= graph.modules.size() || skip.to < skip.from || skip.to - skip.from < 2) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("skip edge {} -> {}: it must lead forward over at least one of "
                               "the {} modules",
                               skip.from, skip.to, graph.modules.size()));
    }
    if (!seen.insert({skip.from, skip.to}).second) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("skip edge {} -> {} is there twice", skip.from, skip.to));
    }
  }
  return {};
}

// Sums up the modules of each stage, finds the edges between stages, and then the memory that
// depends on both.
Result<StageGraph> CutIntoStages(const ModelGraph& graph, const StageSplit& split) {
  FOREBAY_TRY(CheckGraph(graph));
  FOREBAY_TRY(CheckSplit(split, graph.modules.size()));
  const auto modules = static_cast<std::uint32_t>(graph.modules.size());
  const std::vector<std::uint32_t> stage_of = StageOfModules(split, modules);
  StageGraph cut;
  cut.input_bytes = graph.input_bytes;
  cut.target_bytes = graph.target_bytes;
  cut.stages.resize(split.stages());
  for (std::uint32_t module = 0; module < modules; ++module) {
    const ModuleProfile& profile = graph.modules[module];
    StageCost& stage = cut.stages[stage_of[module]];
    stage.forward_ns += profile.forward_ns;
    stage.backward_ns += profile.backward_ns;
    stage.parameter_bytes += profile.parameter_bytes;
    stage.saved_bytes += profile.saved_bytes;
    stage.statistics_bytes += profile.statistics_bytes;
    if (stage.modules.empty()) stage.first_module = module;
    stage.modules.push_back(
        {.forward_ns = profile.forward_ns,
         .backward_ns = profile.backward_ns,
         .graph_bytes = Less(profile.saved_bytes, profile.output_bytes),
         .fixed_bytes = std::min(profile.fixed_bytes,
                                 Less(profile.saved_bytes, profile.output_bytes)),
         .output_bytes = profile.output_bytes,
         .forward_scratch_bytes = profile.forward_scratch_bytes,
         .backward_scratch_bytes = profile.backward_scratch_bytes,
         .sources = SourcesOf(graph, module)});
  }
  cut.edges = CrossingEdges(graph, stage_of);
  for (std::uint32_t stage = 0; stage < cut.stages.size(); ++stage) AddScratch(cut, stage);
  for (std::uint32_t module = 0; module < modules; ++module) {
    if (std::ranges::find(cut.edges, module, &StageEdge::from_module) == cut.edges.end()) continue;
    const ModuleProfile& profile = graph.modules[module];
    // An output that is sent is a buffer of its own in the plan: it must not count twice.
    cut.stages[stage_of[module]].saved_bytes -= std::min(profile.saved_bytes,
                                                         profile.output_bytes);
  }
  return cut;
}

}  // namespace forebay::train
