// LibTorch asks its autograd engine for default hooks whenever an operator saves a tensor for its
// backward pass. Our engine returns hooks that note the tensor in the list of the current
// recording. Everything that depends on the version of LibTorch is in this file, and ProbeRecording
// tries it on a small graph before it is relied on.
#include "trainer/exec/swap/saved_tensors.h"

#include <set>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "proto/contract/check.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::train {
namespace {

// Where the hooks of this thread note what is saved; null if nobody records. Operators of a
// forward pass run on the thread that calls them.
thread_local SavedTensors* recording = nullptr;

// A handle of its own on the tensor's memory: keeping the tensor itself would keep the graph that
// made it, which keeps these hooks. The version counter is shared, unlike that of a copy.
torch::Tensor HandleOf(const at::Tensor& tensor) {
  const c10::TensorImpl& whole = *tensor.unsafeGetTensorImpl();
  return at::Tensor(whole.shallow_copy_and_detach(whole.version_counter(),
                                                  /*allow_tensor_metadata_change=*/false));
}

// The hooks of one saved tensor. They live as long as the graph does.
class RecordingHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit RecordingHooks(SavedTensors& into) : into_(&into) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    saved_ = std::make_shared<SavedTensor>();
    saved_->tensor = HandleOf(tensor);
    saved_->version = static_cast<std::uint32_t>(saved_->tensor._version());
    into_->push_back(saved_);
    into_ = nullptr;  // the list may end before the graph
  }

  // Autograd leaves the check of versions to hooks where there are some.
  at::Tensor call_unpack_hook() override {
    const auto version = static_cast<std::uint32_t>(saved_->tensor._version());
    if (version != saved_->version) {
      throw std::runtime_error(
          fmt::format("a tensor that is needed for backward was modified in place after it was "
                      "saved: {} times",
                      version - saved_->version));
    }
    return saved_->tensor;
  }

 private:
  SavedTensors* into_;
  std::shared_ptr<SavedTensor> saved_;
};

class RecordingEngine final : public torch::autograd::Engine {
 public:
  RecordingEngine() = default;
  ~RecordingEngine() override { stop(); }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks()
      override {
    // No hooks: autograd then saves as usual, at no cost.
    if (recording == nullptr) return nullptr;
    return std::make_unique<RecordingHooks>(*recording);
  }
};

// LibTorch wants one engine that lives as long as the process.
torch::autograd::Engine& EngineOfProcess() {
  static RecordingEngine engine;
  return engine;
}

// exp saves its output, a product its factors.
Status ProbeRecording() {
  const torch::AutoGradMode gradients(true);
  const auto run = [](SavedTensors* saved, bool spoils) {
    const torch::Tensor x = torch::linspace(0, 1, 64).requires_grad_();
    torch::Tensor y;
    {
      std::unique_ptr<SavedTensorRecording> scope;
      if (saved != nullptr) scope = std::make_unique<SavedTensorRecording>(*saved);
      y = torch::exp(x * x);
    }
    // detach shares memory and version, so autograd has to notice that the output of exp has
    // changed.
    if (spoils) y.detach().mul_(2);
    torch::autograd::backward({y.sum()}, {});
    return x.grad();
  };
  SavedTensors saved;
  const torch::Tensor expected = run(nullptr, false);
  const torch::Tensor recorded = run(&saved, false);
  if (saved.empty()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "this LibTorch does not ask the engine for hooks of saved tensors");
  }
  // Bit by bit: recording must not change any result.
  if (!torch::equal(expected, recorded)) {
    return Error(ErrorCode::kFailedPrecondition,
                 "gradients differ when this LibTorch's saved tensors are recorded");
  }
  try {
    run(&saved, true);
  } catch (const std::exception&) {
    return {};
  }
  return Error(ErrorCode::kFailedPrecondition,
               "with this LibTorch a saved tensor that is modified goes unnoticed");
}

}  // namespace

Status InstallSavedTensorHooks() {
  static Mutex installing;
  static bool installed = false;
  const MutexLock lock(installing);
  // An installation that failed is tried again by the next caller, who gets the error as well.
  if (installed) return {};
  try {
    torch::autograd::set_default_engine_stub(EngineOfProcess);
    FOREBAY_TRY(ProbeRecording());
  } catch (const std::exception& error) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("saved tensors cannot be recorded: {}", error.what()));
  }
  installed = true;
  return {};
}

// Recordings do not nest: a tensor belongs to one part.
SavedTensorRecording::SavedTensorRecording(SavedTensors& saved) {
  FOREBAY_CHECK(recording == nullptr);
  recording = &saved;
}

SavedTensorRecording::~SavedTensorRecording() { recording = nullptr; }

// By storage: several saved tensors may be views of one, and inputs and parameters stay anyway.
std::uint64_t SavedBytes(const SavedTensors& saved, std::span<const torch::Tensor> others) {
  std::set<const c10::StorageImpl*> counted;
  // Storages that stay anyway are marked as counted, so that they add nothing.
  for (const torch::Tensor& other : others) {
    if (other.has_storage()) counted.insert(other.storage().unsafeGetStorageImpl());
  }
  std::uint64_t bytes = 0;
  for (const std::shared_ptr<SavedTensor>& entry : saved) {
    if (!entry->tensor.has_storage()) continue;
    const c10::StorageImpl* storage = entry->tensor.storage().unsafeGetStorageImpl();
    if (counted.insert(storage).second) bytes += storage->nbytes();
  }
  return bytes;
}

}  // namespace forebay::train
