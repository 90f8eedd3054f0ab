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
  // Kept from forward to backward: what autograd saves and the output, without the inputs, which
  // are other modules' outputs.
  std::uint64_t saved_bytes = 0;
  std::uint64_t output_bytes = 0;  // handed to the next module
  // Of saved_bytes without the output: stays where it is when the rest is swapped to the host,
  // because pieces are too small or held by somebody else, too.
  std::uint64_t fixed_bytes = 0;
  // Beside what is kept, for a while: the operators' own; on the way back also the gradients of
  // inputs and parameters, but not that of the output.
  std::uint64_t forward_scratch_bytes = 0;
  std::uint64_t backward_scratch_bytes = 0;
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

// A module of a stage, for those who move what it saves.
struct StageModule {
  std::uint64_t forward_ns = 0;
  std::uint64_t backward_ns = 0;
  std::uint64_t graph_bytes = 0;   // kept for backward besides inputs and output
  std::uint64_t fixed_bytes = 0;   // of these; see ModuleProfile
  std::uint64_t output_bytes = 0;
  // Beside buffers of the plan, while the module is computed alone. Backward: with the gradients
  // of outputs that lie here meanwhile, its own output's among them.
  std::uint64_t forward_scratch_bytes = 0;
  std::uint64_t backward_scratch_bytes = 0;
  std::vector<std::uint32_t> sources = {};  // the modules whose outputs it takes, ascending
};

struct StageCost {
  std::uint64_t forward_ns = 0;
  std::uint64_t backward_ns = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t saved_bytes = 0;  // without outputs that leave the stage: they are sent from where
                                  // they are, and have buffers of their own
  std::uint64_t statistics_bytes = 0;
  // Beside buffers of the plan while all modules are computed: what the last of a pass have not
  // made yet, or the first have given back, is counted as room for the others' scratch.
  std::uint64_t forward_scratch_bytes = 0;
  std::uint64_t backward_scratch_bytes = 0;
  std::uint32_t first_module = 0;
  std::vector<StageModule> modules;

  std::uint32_t EndModule() const {
    return first_module + static_cast<std::uint32_t>(modules.size());
  }
  bool Has(std::uint32_t module) const {
    return module >= first_module && module < EndModule();
  }
  const StageModule& Module(std::uint32_t module) const {
    return modules.at(module - first_module);
  }
  // Of one module of the stage, or of all with kAllModules, which no stage has.
  std::uint64_t ForwardNs(std::uint32_t module) const {
    return Has(module) ? Module(module).forward_ns : forward_ns;
  }
  std::uint64_t BackwardNs(std::uint32_t module) const {
    return Has(module) ? Module(module).backward_ns : backward_ns;
  }
  std::uint64_t ForwardScratch(std::uint32_t module) const {
    return Has(module) ? Module(module).forward_scratch_bytes : forward_scratch_bytes;
  }
  std::uint64_t BackwardScratch(std::uint32_t module) const {
    return Has(module) ? Module(module).backward_scratch_bytes : backward_scratch_bytes;
  }
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
