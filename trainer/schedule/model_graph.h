// The model as the planner sees it: a chain of sub-modules with skip edges, their times and bytes;
// and what becomes of it when the chain is cut into pipeline stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

// One sub-module of the chain: the grain at which a model is cut. Times and bytes are those of
// one canonical micro-batch.
struct ModuleProfile {
  std::string name;
  std::uint64_t forward_ns = 0;
  std::uint64_t backward_ns = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t saved_bytes = 0;   // kept from forward to backward, the module's input included
  std::uint64_t output_bytes = 0;  // handed to the next module
  // Buffers that follow the parameters (running statistics), all-gathered once a step.
  std::uint64_t statistics_bytes = 0;
};

// The output of module `from` is used by module `to`, beyond its successor: a U-Net's bypass.
struct SkipEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

struct ModelGraph {
  std::vector<ModuleProfile> modules;
  std::vector<SkipEdge> skips;
  std::uint64_t input_bytes = 0;   // what the first module is fed with
  std::uint64_t target_bytes = 0;  // what the loss, at the last module, is fed with
};

// kInvalidArgument for an empty chain, a skip edge that does not lead forward over at least one
// module, or one that is there twice; the message names it.
Status CheckGraph(const ModelGraph& graph);

// Where the chain is cut: stage s has the modules [begins[s], begins[s + 1]).
struct StageSplit {
  std::vector<std::uint32_t> begins;  // begins[0] is 0

  std::uint32_t stages() const { return static_cast<std::uint32_t>(begins.size()); }
};

// A tensor that one stage makes and a later one uses: the chain's own or a skip's. It is sent
// once to each stage. But a tensor with three users or more is sent once to each user: were the
// gradients of two users summed where they are, the order of additions, and so the result, would
// depend on the cut.
struct StageEdge {
  std::uint32_t from_stage = 0;
  std::uint32_t to_stage = 0;
  std::uint32_t from_module = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> to_modules = {};  // the users that this edge serves, ascending
};

struct StageCost {
  std::uint64_t forward_ns = 0;
  std::uint64_t backward_ns = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t saved_bytes = 0;
  std::uint64_t statistics_bytes = 0;
};

struct StageGraph {
  std::vector<StageCost> stages;
  std::vector<StageEdge> edges;  // by from_stage, to_stage, from_module, to_modules
  std::uint64_t input_bytes = 0;
  std::uint64_t target_bytes = 0;
};

// kInvalidArgument for a bad graph, and for a split that is empty, does not begin at module 0, or
// has a stage without modules.
Result<StageGraph> CutIntoStages(const ModelGraph& graph, const StageSplit& split);

}  // namespace forebay::train
