// Parts are measured in windows: as many consecutive parts as together exceed the caches. Within a
// window, one pass counts bytes, one counts operations, and then several are timed, forward through
// all parts and backward again, as in a step. Threads that are ranks of one process take turns
// while bytes are counted, because the counting allocator is the process's.
#include "trainer/exec/measure/measure_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>

#include <torch/csrc/autograd/autograd.h>

#include "trainer/exec/device/device.h"
#include "trainer/exec/layers.h"
#include "trainer/exec/measure/flop_count.h"
#include "trainer/exec/measure/tensor_bytes.h"
#include "trainer/exec/stage/autocast.h"
#include "trainer/exec/swap/saved_tensors.h"
#include "trainer/exec/swap/storage_swap.h"
#include "trainer/numerics/gradient_sum.h"

namespace forebay::train {
namespace {

// Of the elements, not of the storage, which several tensors may share.
std::uint64_t BytesOf(const torch::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.nbytes());
}

// Runs of a window: two that count bytes and operations, then these that are timed, fewer where
// they take long.
constexpr std::size_t kRunsMin = 3;
constexpr std::size_t kRunsMax = 9;
constexpr std::uint64_t kEnoughNs = 2'000'000'000;
// Parts are measured together until their memory fills any cache.
constexpr std::uint64_t kWindowBytes = std::uint64_t{256} << 20;

// Bytes are counted for the whole process: held alone by the thread that counts, by any number that
// compute meanwhile where nothing is counted.
std::shared_mutex& CountingMutex() {
  static std::shared_mutex mutex;
  return mutex;
}

// The mean without the shortest and the longest: a step's time is a sum over all micro-batches, and
// some of them are slow.
std::uint64_t MeanOf(std::vector<std::uint64_t> times) {
  std::ranges::sort(times);
  // kRunsMin is 3, so at least one is left.
  return std::accumulate(times.begin() + 1, times.end() - 1, std::uint64_t{0}) /
         (times.size() - 2);
}

// Parameters and normalisation's statistics of one part.
void CountBytes(const std::shared_ptr<Part>& part, ModuleProfile& profile) {
  for (const torch::Tensor& parameter : part->parameters()) {
    profile.parameter_bytes += BytesOf(parameter);
  }
  profile.statistics_bytes = BatchStatistics({part}).floats() * sizeof(float);
}

// The output and what autograd keeps besides inputs, parameters and buffers, which stay anyway.
std::uint64_t KeptBytes(const SavedTensors& saved, const Part& part,
                        const std::vector<torch::Tensor>& inputs, const torch::Tensor& output) {
  std::vector<torch::Tensor> others = inputs;
  others.push_back(output);
  for (const torch::Tensor& parameter : part.parameters()) others.push_back(parameter);
  for (const torch::Tensor& buffer : part.buffers()) others.push_back(buffer);
  return BytesOf(output) + SavedBytes(saved, others);
}

// What a step does with them; on a GPU, where that takes next to nothing, they are dropped.
void AddGradients(const std::vector<torch::Tensor>& parameters, GradientSum& sum) {
  std::size_t offset = 0;
  for (const torch::Tensor& parameter : parameters) {
    const auto floats = static_cast<std::size_t>(parameter.numel());
    torch::Tensor& gradient = parameter.mutable_grad();
    // A frozen parameter has no gradient.
    if (gradient.defined() && gradient.is_cpu()) {
      const torch::Tensor values = gradient.contiguous();
      sum.Add(offset, {values.data_ptr<float>(), floats});
    }
    // The gradient is dropped as at the end of a step: the next backward pass then makes a new one
    // instead of adding to it.
    gradient = torch::Tensor();
    offset += floats;
  }
  sum.Next();
}

// Of what a graph saves, beside inputs and output, the bytes that no swap moves.
std::uint64_t FixedBytes(const SavedTensors& saved, std::uint64_t graph_bytes,
                         const std::vector<torch::Tensor>& inputs, const torch::Tensor& output) {
  std::vector<const torch::Tensor*> own;
  for (const std::shared_ptr<SavedTensor>& entry : saved) {
    const auto same = [&](const torch::Tensor& other) { return other.is_alias_of(entry->tensor); };
    if (!entry->tensor.has_storage()) continue;
    if (!same(output) && std::ranges::none_of(inputs, same)) own.push_back(&entry->tensor);
  }
  const std::uint64_t moved = MovableBytes(own, SwapOptions().least_bytes);
  return graph_bytes - std::min(graph_bytes, moved);
}

// A part that is being measured.
struct Probe {
  std::uint32_t index = 0;
  std::shared_ptr<Part> part;
  std::vector<torch::Tensor> parameters;
  GradientSum sum;
  ModuleProfile profile;
  std::vector<torch::Tensor> leaves = {};
  torch::Tensor root = {};
  double flops = 0;
  std::vector<std::uint64_t> forward_ns = {};
  std::vector<std::uint64_t> backward_ns = {};
};

class Measurement {
 public:
  Measurement(const Model& model, const torch::Tensor& input, const torch::Tensor& target,
              const std::function<std::uint64_t()>& now_ns, Precision precision, bool records)
      : model_(model), input_(input), target_(target), now_ns_(now_ns), precision_(precision) {
    measure_.saved_exactly = records;
  }

  Result<ModelMeasure> Run() {
    for (std::uint32_t at = 0; at < model_.parts.size();) at = Window(at);
    if (!trains_) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("model {} has no parameter that is trained: there are none, or "
                               "all are frozen",
                               model_.name));
    }
    measure_.graph.input_bytes = BytesOf(input_);
    measure_.graph.target_bytes = BytesOf(target_);
    return std::move(measure_);
  }

 private:
  // Measures parts from `first` on and returns the first that is not.
  std::uint32_t Window(std::uint32_t first) {
    std::vector<Probe> probes;
    {
      // Alone: what other threads allocate would be counted here.
      const std::unique_lock counting(CountingMutex());
      TensorBytes bytes(input_.device());
      std::uint64_t held = 0;
      std::uint32_t part = first;
      // One part at least, also where it is larger than a window; and no more parts than needed, so
      // that models that do not fit into memory at once can be measured.
      while (part < model_.parts.size() && (part == first || held < kWindowBytes)) {
        Probe& probe = probes.emplace_back(MakeProbe(part++));
        CountForward(probe, bytes);
        // Weights and their gradients, and what the graph keeps.
        held += 2 * probe.profile.parameter_bytes + probe.profile.saved_bytes;
      }
      // Bytes count where operations do not: counting holds on to what operators take.
      for (auto at = probes.rbegin(); at != probes.rend(); ++at) {
        // Backwards through the parts: each graph that CountForward left is used up here.
        CountFlops(*at, [&] { Differentiate(*at, torch::ones_like(at->root)); });
      }
      for (Probe& probe : probes) CountFlops(probe, [&] { Compute(probe); });
      for (auto at = probes.rbegin(); at != probes.rend(); ++at) CountBackward(*at, bytes);
    }
    // Together with other ranks that time, but not while one counts.
    const std::shared_lock timing(CountingMutex());
    const std::uint64_t began_ns = now_ns_();
    for (std::size_t run = 0;
         run < kRunsMin || (run < kRunsMax && now_ns_() - began_ns < kEnoughNs); ++run) {
      for (Probe& probe : probes) Forward(probe);
      for (auto at = probes.rbegin(); at != probes.rend(); ++at) Backward(*at);
    }
    for (Probe& probe : probes) Finish(probe);
    first += static_cast<std::uint32_t>(probes.size());
    probes.clear();
    // Kept until then, because a later part may take the output of an early one.
    if (first == model_.parts.size()) outputs_.clear();
    return first;
  }

  // Makes the part as the trainer would, and counts what does not depend on a pass.
  Probe MakeProbe(std::uint32_t index) {
    const ModelPart& spec = model_.parts[index];
    const std::shared_ptr<Part> part = spec.make();
    part->to(input_.device());
    ModuleProfile profile;
    profile.name = spec.name;
    CountBytes(part, profile);
    Probe probe{.index = index,
                .part = part,
                .parameters = part->parameters(),
                .sum = GradientSum(profile.parameter_bytes / sizeof(float),
                                   SumOrder::kLeftToRight),
                .profile = std::move(profile)};
    trains_ = trains_ || std::ranges::any_of(probe.parameters, [](const torch::Tensor& one) {
                return one.requires_grad();
              });
    for (const std::string& taken : spec.takes) {
      measure_.graph.skips.push_back({.from = IndexOf(taken), .to = index});
    }
    return probe;
  }

  std::uint32_t IndexOf(const std::string& name) const {
    const auto found = std::ranges::find(model_.parts, name, &ModelPart::name);
    return static_cast<std::uint32_t>(found - model_.parts.begin());
  }

  void TakeInputs(Probe& probe) {
    probe.leaves.clear();
    if (probe.index == 0) probe.leaves.push_back(input_.detach());
    // Outputs are detached: each part has a graph of its own, as in training.
    if (probe.index > 0) {
      probe.leaves.push_back(WithGradient(outputs_[probe.index - 1]));
    }
    for (const std::string& taken : model_.parts[probe.index].takes) {
      probe.leaves.push_back(WithGradient(outputs_[IndexOf(taken)]));
    }
  }

  // A forward pass as StageCompute makes it, without statistics and without random state of a
  // step.
  void Compute(Probe& probe) {
    TakeInputs(probe);
    Pass pass;
    pass.part = probe.profile.name;
    {
      const AutocastScope autocast(precision_, input_.device().type());
      // Contiguous, as the trainer needs it for messages; the copy, where there is one, is part of
      // the time.
      probe.root = probe.part->Forward(probe.leaves, pass).contiguous();
    }
    outputs_.resize(std::max<std::size_t>(outputs_.size(), probe.index + 1));
    outputs_[probe.index] = probe.root.detach();
    const bool last = probe.index + 1 == model_.parts.size();
    if (last) probe.root = model_.loss->Sum(probe.root.to(torch::kFloat32), target_);
  }

  // One forward pass with counters. Autograd's saved tensors tell what the graph keeps.
  void CountForward(Probe& probe, TensorBytes& bytes) {
    SavedTensors saved;
    bytes.BeginPeak();
    {
      std::optional<SavedTensorRecording> recording;
      if (measure_.saved_exactly) recording.emplace(saved);
      Compute(probe);
    }
    ModuleProfile& profile = probe.profile;
    const torch::Tensor& output = outputs_[probe.index];
    // What the pass needed at its peak beyond what it leaves behind.
    profile.forward_scratch_bytes = bytes.Peak() - bytes.Live();
    profile.output_bytes = BytesOf(output);
    profile.saved_bytes = KeptBytes(saved, *probe.part, probe.leaves, output);
    profile.fixed_bytes =
        FixedBytes(saved, profile.saved_bytes - profile.output_bytes, probe.leaves, output);
    for (const torch::Tensor& leaf : probe.leaves) {
      if (!measure_.saved_exactly) profile.saved_bytes += BytesOf(leaf);
    }
    const auto sizes = output.sizes();
    measure_.outputs.push_back(
        {.shape = {sizes.begin() + 1, sizes.end()}, .type = output.scalar_type()});
  }

  // The observer slows operators down, so that nothing is timed meanwhile.
  template <typename Callable>
  static void CountFlops(Probe& probe, Callable&& work) {
    const FlopCount count;
    work();
    probe.flops += count.flops();
  }

  // The gradient of the output is there before; those of inputs and parameters count.
  static void CountBackward(Probe& probe, TensorBytes& bytes) {
    const torch::Tensor gradient = torch::ones_like(probe.root);
    bytes.BeginPeak();
    const std::uint64_t live_bytes = bytes.Live();
    Differentiate(probe, gradient);
    probe.profile.backward_scratch_bytes = bytes.Peak() - live_bytes;
  }

  // The graph is freed with its root, as after a step's backward pass.
  static void Differentiate(Probe& probe, const torch::Tensor& gradient) {
    // The model may begin with parts that have nothing to learn.
    if (probe.root.requires_grad()) torch::autograd::backward({probe.root}, {gradient});
    probe.root = torch::Tensor();
    AddGradients(probe.parameters, probe.sum);
  }

  // On a GPU each part is waited for, because operators return before they have run.
  void Forward(Probe& probe) {
    const std::uint64_t began_ns = now_ns_();
    Compute(probe);
    Synchronise(input_.device());
    probe.forward_ns.push_back(now_ns_() - began_ns);
  }

  void Backward(Probe& probe) {
    const torch::Tensor gradient = torch::ones_like(probe.root);
    const std::uint64_t began_ns = now_ns_();
    Differentiate(probe, gradient);
    Synchronise(input_.device());
    probe.backward_ns.push_back(now_ns_() - began_ns);
  }

  void Finish(Probe& probe) {
    probe.profile.forward_ns = MeanOf(std::move(probe.forward_ns));
    probe.profile.backward_ns = MeanOf(std::move(probe.backward_ns));
    measure_.flops.push_back(probe.flops);
    measure_.graph.modules.push_back(std::move(probe.profile));
  }

  const Model& model_;
  const torch::Tensor& input_;
  const torch::Tensor& target_;
  const std::function<std::uint64_t()>& now_ns_;
  Precision precision_;
  std::vector<torch::Tensor> outputs_;
  ModelMeasure measure_;
  bool trains_ = false;  // a parameter
};

// Numbers and names as words of 64 bits; either written or read back, so that both sides have one
// order.
class Words {
 public:
  Words() = default;
  explicit Words(std::vector<std::uint64_t> words) : words_(std::move(words)), reads_(true) {}

  template <typename Number>
  void Pass(Number& number) {
    if (!reads_) {
      words_.push_back(static_cast<std::uint64_t>(number));
    } else if (at_ < words_.size()) {
      number = static_cast<Number>(words_[at_++]);
    } else {
      short_ = true;
    }
  }

  // The length of something whose elements take a word at least.
  template <typename Sequence>
  void PassSize(Sequence& sequence) {
    std::uint64_t size = sequence.size();
    Pass(size);
    if (!reads_ || short_) return;
    // Bounds the memory below by the words that came, whatever the number says.
    short_ = size > words_.size() - at_;
    if (!short_) sequence.resize(size);
  }

  bool complete() const { return !short_ && at_ == words_.size(); }
  std::vector<std::uint64_t>& words() { return words_; }

 private:
  std::vector<std::uint64_t> words_;
  bool reads_ = false;
  std::size_t at_ = 0;
  bool short_ = false;
};

// Writes the module's numbers to `words`, or reads them from there.
void PassModule(Words& words, ModuleProfile& module) {
  words.PassSize(module.name);
  for (char& letter : module.name) words.Pass(letter);
  for (std::uint64_t* const number :
       {&module.forward_ns, &module.backward_ns, &module.parameter_bytes, &module.saved_bytes,
        &module.output_bytes, &module.fixed_bytes, &module.forward_scratch_bytes,
        &module.backward_scratch_bytes, &module.statistics_bytes}) {
    words.Pass(*number);
  }
}
// A new figure of a module has to travel, too.
static_assert(sizeof(ModuleProfile) == sizeof(std::string) + 9 * sizeof(std::uint64_t));

void PassMeasure(Words& words, ModelMeasure& measure) {
  words.Pass(measure.saved_exactly);
  words.Pass(measure.graph.input_bytes);
  words.Pass(measure.graph.target_bytes);
  words.PassSize(measure.graph.modules);
  for (ModuleProfile& module : measure.graph.modules) PassModule(words, module);
  words.PassSize(measure.graph.skips);
  for (SkipEdge& skip : measure.graph.skips) {
    words.Pass(skip.from);
    words.Pass(skip.to);
  }
  words.PassSize(measure.outputs);
  for (PartOutput& output : measure.outputs) {
    words.PassSize(output.shape);
    for (std::int64_t& extent : output.shape) words.Pass(extent);
    words.Pass(output.type);
  }
  words.PassSize(measure.flops);
  for (double& flops : measure.flops) words.Pass(flops);  // counts: whole numbers
}

}  // namespace

Result<ModelMeasure> MeasureModel(const Model& model, const torch::Tensor& input,
                                  const torch::Tensor& target,
                                  const std::function<std::uint64_t()>& now_ns,
                                  Precision precision) {
  // Before the first part is made: IndexOf relies on names that exist.
  FOREBAY_TRY(CheckModel(model));
  const bool records = InstallSavedTensorHooks().has_value();
  try {
    return Measurement(model, input, target, now_ns, precision, records).Run();
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("model {} does not take this input: {}", model.name, error.what()));
  }
}

// Sizes first, then the words: ranks that measured nothing do not know how many there are.
Status ShareMeasure(ModelMeasure& measure, std::size_t parts, Communicator& communicator) {
  if (communicator.size() == 1) return {};
  const bool leads = communicator.rank() == 0;
  // Numbers and names as 64-bit words, so that one broadcast carries everything.
  Words sent;
  if (leads) PassMeasure(sent, measure);
  std::array<std::uint64_t, 1> size = {sent.words().size()};
  FOREBAY_TRY(communicator.Broadcast(std::as_writable_bytes(std::span(size)), 0));
  sent.words().resize(size[0]);
  FOREBAY_TRY(communicator.Broadcast(std::as_writable_bytes(std::span(sent.words())), 0));
  if (leads) return {};
  Words received(std::move(sent.words()));
  measure = {};
  PassMeasure(received, measure);
  if (received.complete() && measure.graph.modules.size() == parts &&
      measure.outputs.size() == parts && measure.flops.size() == parts) {
    return {};
  }
  return Error(ErrorCode::kDataLoss,
               "rank 0's measurement of the model is not of this rank's model: do all ranks run "
               "the same program with the same configuration?");
}

}  // namespace forebay::train
