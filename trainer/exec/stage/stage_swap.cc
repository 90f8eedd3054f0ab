// A storage may go only if every tensor that points to it is known, because the others would read
// freed memory. So the work here is to find all holders of a buffer in the state of a micro-batch.
#include "trainer/exec/stage/stage_swap.h"

#include <algorithm>
#include <memory>

namespace forebay::train {
namespace {

// Buffers are named by what they stand for, since tensors change while they are away.
SwapKey KeyOf(const Buffer& buffer) { return {buffer.kind, buffer.micro_batch, buffer.module}; }

// Views and handles of one tensor have one storage, which is what moves.
bool SharesStorage(const torch::Tensor& one, const torch::Tensor& other) {
  return one.defined() && other.defined() && one.has_storage() && other.has_storage() &&
         one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
}

// What the graph of a module, or of all modules, saves for itself. Inputs and the output are
// buffers of their own in the plan, and are left to these.
std::vector<const torch::Tensor*> HoldersOfSaved(std::uint32_t module,
                                                 const MicroBatchState& state) {
  std::vector<const torch::Tensor*> tensors;
  for (const auto& [part, graph] : state.graphs) {
    if (part != module && module != kAllModules) continue;
    for (const std::shared_ptr<SavedTensor>& saved : graph.saved) {
      const auto same = [&](const torch::Tensor& other) {
        return SharesStorage(saved->tensor, other);
      };
      const auto value = state.values.find(part);
      const bool belongs_to_other = std::ranges::any_of(graph.leaves, same) ||
                                    (value != state.values.end() && same(value->second));
      if (!belongs_to_other) tensors.push_back(&saved->tensor);
    }
  }
  return tensors;
}

}  // namespace

StageSwap::StageSwap(const Model& model, const SwapOptions& options, const torch::Device& device)
    : sources_(SourcesOf(model)), swap_(options, device) {}

// A value is held by the state, by the graph of the part that made it, and by those of its users,
// which need it back no earlier than the plan says.
std::vector<const torch::Tensor*> StageSwap::HoldersOfValue(std::uint32_t made,
                                                            const MicroBatchState& state) const {
  std::vector<const torch::Tensor*> tensors;
  const auto value = state.values.find(made);
  if (value == state.values.end()) return tensors;
  tensors.push_back(&value->second);
  const auto add = [&](const torch::Tensor& holder) {
    if (SharesStorage(holder, value->second)) tensors.push_back(&holder);
  };
  for (const auto& [part, graph] : state.graphs) {
    const bool uses = std::ranges::find(sources_[part], made) != sources_[part].end();
    if (part == made) add(graph.root);
    if (uses) std::ranges::for_each(graph.leaves, add);
    if (!uses && part != made) continue;
    for (const std::shared_ptr<SavedTensor>& saved : graph.saved) add(saved->tensor);
  }
  return tensors;
}

std::vector<const torch::Tensor*> StageSwap::HoldersOf(const Buffer& buffer,
                                                       const MicroBatchState& state) const {
  return buffer.kind == BufferKind::kSaved ? HoldersOfSaved(buffer.module, state)
                                           : HoldersOfValue(buffer.module, state);
}

Status StageSwap::Out(const Buffer& buffer, const MicroBatchState& state) {
  return swap_.Out(KeyOf(buffer), HoldersOf(buffer, state));
}

void StageSwap::EndOut(const Buffer& buffer) { swap_.EndOut(KeyOf(buffer)); }

void StageSwap::In(const Buffer& buffer) { swap_.In(KeyOf(buffer)); }

void StageSwap::AwaitBack(const Buffer& buffer) { swap_.AwaitBack(KeyOf(buffer)); }

}  // namespace forebay::train
