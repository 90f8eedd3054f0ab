// Model graphs for the tests of this folder.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "trainer/schedule/memory/memory_plan.h"
#include "trainer/schedule/plan_builder.h"

namespace forebay::train {

// A chain of `count` equal modules.
inline ModelGraph EvenChain(std::uint32_t count) {
  ModelGraph graph;
  for (std::uint32_t module = 0; module < count; ++module) {
    graph.modules.push_back({.name = "m" + std::to_string(module),
                             .forward_ns = 1'000'000,
                             .backward_ns = 2'000'000,
                             .parameter_bytes = 1000,
                             .saved_bytes = 500,
                             .output_bytes = 100});
  }
  graph.input_bytes = 64;
  graph.target_bytes = 8;
  return graph;
}

// A U-Net of one level more than one: module 0 feeds module 4, module 1 feeds module 3, too.
inline ModelGraph UNetChain() {
  ModelGraph graph = EvenChain(5);
  graph.skips = {{0, 4}, {1, 3}};
  return graph;
}

// Chains of 1 to 12 modules of any times and sizes, with up to 6 skip edges.
inline ModelGraph RandomGraph(std::mt19937_64& random) {
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  ModelGraph graph = EvenChain(static_cast<std::uint32_t>(1 + below(12)));
  for (ModuleProfile& module : graph.modules) {
    module.forward_ns = below(1000);
    module.backward_ns = below(2000);
    module.parameter_bytes = below(3) * 700;
    module.saved_bytes = below(5000);
    module.output_bytes = 8 + below(300);
    module.forward_scratch_bytes = below(400);
    module.backward_scratch_bytes = below(800);
    module.statistics_bytes = below(2) * 16;
  }
  const auto count = static_cast<std::uint32_t>(graph.modules.size());
  for (std::uint64_t tries = below(7); tries > 0 && count > 2; --tries) {
    const auto from = static_cast<std::uint32_t>(below(count - 2));
    const auto to = static_cast<std::uint32_t>(from + 2 + below(count - from - 2));
    graph.skips.push_back({from, to});
    if (!CheckGraph(graph).has_value()) graph.skips.pop_back();  // there twice
  }
  return graph;
}

// Any cut of the graph into any number of stages up to 4.
inline StageSplit RandomSplit(std::mt19937_64& random, const ModelGraph& graph) {
  const auto count = static_cast<std::uint32_t>(graph.modules.size());
  const std::uint32_t stages = 1 + static_cast<std::uint32_t>(random() % std::min(count, 4U));
  StageSplit split;
  std::uint32_t begin = 0;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    split.begins.push_back(begin);
    const std::uint32_t spare = count - begin - (stages - stage);
    begin += 1 + static_cast<std::uint32_t>(random() % (spare + 1));
  }
  return split;
}

// A random graph, cut, layout and schedule: at most 8 ranks and 8 micro-batches each.
struct RandomCase {
  ModelGraph graph;
  StageSplit split;
  StepPlan plan;
};

inline RandomCase MakeRandomCase(std::mt19937_64& random) {
  RandomCase made;
  made.graph = RandomGraph(random);
  made.split = RandomSplit(random, made.graph);
  PlanRequest request;
  request.stages = CutIntoStages(made.graph, made.split).value();
  request.layout.stages = made.split.stages();
  request.layout.replicas = 1 + static_cast<std::uint32_t>(random() % 2);
  request.micro_batches = request.layout.replicas * (1U << (random() % 4));
  request.schedule = &PipelineSchedules()[random() % PipelineSchedules().size()];
  request.trains = random() % 8 != 0;
  request.clips = random() % 2 == 0;
  request.bucket_bytes = 1024;
  made.plan = BuildPlan(request).value();
  return made;
}

// Moves whatever the plan saves, or not.
inline StepPlan MoveAtRandom(std::mt19937_64& random, const StepPlan& plan) {
  StepKeeping choices = KeepAll(plan, {});
  for (RankKeeping& rank : choices) {
    for (std::vector<ModuleKeeping>& modules : rank) {
      for (ModuleKeeping& keeping : modules) {
        keeping.graph = static_cast<Keeping>(random() % 3);
        keeping.output = static_cast<Keeping>(random() % 2);
        keeping.ahead = static_cast<std::uint32_t>(random() % 6);
      }
    }
  }
  return MoveSaved(plan, choices).value();
}

inline StepPlan RandomPlan(std::mt19937_64& random) { return MakeRandomCase(random).plan; }

}  // namespace forebay::train
