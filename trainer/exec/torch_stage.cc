#include "trainer/exec/torch_stage.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/exec/autocast.h"
#include "trainer/exec/device.h"

namespace forebay::train {
namespace {

// Runs `work`, which may throw, and returns its exception as an Error.
template <typename Callable>
Status Guarded(const char* what, Callable&& work) {
  try {
    work();
    return {};
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, fmt::format("{}: {}", what, error.what()));
  }
}

std::vector<std::shared_ptr<Part>> PartsOf(const std::vector<HeldPart*>& held) {
  std::vector<std::shared_ptr<Part>> parts;
  for (const HeldPart* part : held) parts.push_back(part->part());
  return parts;
}

// For every part, whose outputs it takes: the part before, then its skips.
std::vector<std::vector<std::uint32_t>> SourcesOf(const Model& model) {
  std::vector<std::vector<std::uint32_t>> sources(model.parts.size());
  for (std::uint32_t part = 0; part < model.parts.size(); ++part) {
    if (part > 0) sources[part].push_back(part - 1);
    for (const std::string& taken : model.parts[part].takes) {
      const auto found = std::ranges::find(model.parts, taken, &ModelPart::name);
      sources[part].push_back(static_cast<std::uint32_t>(found - model.parts.begin()));
    }
  }
  return sources;
}

// The later users' sum is there already; this user's comes in front of it.
void AddGradient(torch::Tensor& sum, const torch::Tensor& gradient) {
  sum = sum.defined() ? gradient + sum : gradient;
}

// On a GPU: where its memory begins. What a kernel does may depend on how its operands are aligned,
// and a micro-batch's place in its replica's share, on the layout.
torch::Tensor AloneOnDevice(const torch::Tensor& piece, const torch::Device& device) {
  const torch::Tensor own = OnDevice(piece, device);
  return own.defined() && !own.is_cpu() && own.storage_offset() != 0 ? own.clone() : own;
}

std::span<const std::byte> BytesOf(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()),
          static_cast<std::size_t>(tensor.nbytes())};
}

bool SharesStorage(const torch::Tensor& one, const torch::Tensor& other) {
  return one.defined() && other.defined() && one.has_storage() && other.has_storage() &&
         one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
}

}  // namespace

TorchStage::TorchStage(const Model& model, const StepPlan& plan, const StageSplit& split,
                       std::uint32_t rank, const std::vector<PartOutput>& outputs,
                       std::vector<HeldPart*> parts, const StageOptions& options)
    : model_(model),
      plan_(plan),
      rank_(rank),
      begin_(split.begins.at(plan.layout.StageOf(rank))),
      outputs_(outputs),
      parts_(std::move(parts)),
      sources_(SourcesOf(model)),
      options_(options),
      statistics_(PartsOf(parts_)),
      gradient_(parts_, options.sum_order, options.arithmetic, options.device) {
  const std::vector<Instruction>& list = plan.programs.at(rank).instructions;
  if (std::ranges::find(list, Op::kSwapOut, &Instruction::op) != list.end()) {
    swap_ = std::make_unique<StorageSwap>(options_.swap, options_.device);
  }
}

void TorchStage::BeginStep(const StageStep& step) {
  FOREBAY_CHECK(step.samples.size() == plan_.micro_batches && step.source != nullptr);
  step_ = step;
  outcome_ = {};
  losses_.clear();
  if (swap_) swap_->Forget();
  work_.clear();
  gradient_.BeginStep();
  batch_statistics_.assign(statistics_.floats() * plan_.micro_batches, 0.0F);
  for (HeldPart* part : parts_) part->part()->train(plan_.trains);
}

double TorchStage::StepSamples() const {
  double samples = 0;
  for (const std::uint32_t count : step_.samples) samples += count;
  return samples;
}

Pass TorchStage::PassOf(std::uint32_t micro_batch, std::uint32_t part) {
  return {.training = plan_.trains,
          .seed = options_.seed,
          .step = step_.step,
          .micro_batch = micro_batch,
          .part = model_.parts[part].name,
          .draws = 0,
          .statistics = statistics_.empty() ? nullptr : &statistics_};
}

Status TorchStage::Feed(const Buffer& buffer) {
  Work& work = work_[buffer.micro_batch];
  if (buffer.kind == BufferKind::kInput) {
    FOREBAY_ASSIGN(work.input, step_.source->Input(buffer.micro_batch));
  } else {
    FOREBAY_ASSIGN(work.target, step_.source->Target(buffer.micro_batch));
  }
  return Guarded("feed", [&] {
    work.input = AloneOnDevice(work.input, options_.device);
    work.target = AloneOnDevice(work.target, options_.device);
  });
}

torch::Tensor TorchStage::RoomFor(std::uint32_t micro_batch, std::uint32_t part) const {
  const PartOutput& output = outputs_[part];
  std::vector<std::int64_t> shape = {step_.samples[micro_batch]};
  shape.insert(shape.end(), output.shape.begin(), output.shape.end());
  return HostRoom(shape, output.type, options_.device);
}

torch::Tensor TorchStage::ValueOf(Work& work, std::uint32_t part) const {
  const auto made = work.values.find(part);
  if (made != work.values.end()) return made->second;
  for (auto& [edge, tensor] : work.received) {
    if (EdgeOf(edge).from_module != part) continue;
    tensor = OnDevice(tensor, options_.device);
    return tensor;
  }
  FOREBAY_CHECK(false);
  return {};
}

Status TorchStage::Forward(std::uint32_t micro_batch, std::uint32_t module) {
  return Guarded("forward pass", [&] {
    Work& work = work_[micro_batch];
    if (!statistics_.empty()) {
      statistics_.Begin(std::span(batch_statistics_)
                            .subspan(statistics_.floats() * micro_batch, statistics_.floats()));
    }
    const bool whole = module == kAllModules;
    const torch::AutoGradMode gradients(plan_.trains);
    for (std::uint32_t part = whole ? begin() : module; part < (whole ? end() : module + 1);
         ++part) {
      if (step_.samples[micro_batch] == 0) {
        // Not every layer can.
        work.values[part] = OnDevice(RoomFor(micro_batch, part), options_.device);
      } else {
        ForwardPart(work, part, PassOf(micro_batch, part), false);
      }
    }
    statistics_.End();
  });
}

void TorchStage::ForwardPart(Work& work, std::uint32_t part, Pass pass, bool again) {
  Graph graph;
  if (part == 0) graph.leaves.push_back(work.input);
  for (const std::uint32_t source : sources_[part]) {
    const torch::Tensor leaf = ValueOf(work, source).detach();
    graph.leaves.push_back(plan_.trains ? WithGradient(leaf) : leaf);
  }
  std::optional<SavedTensorRecording> recording;
  if (swap_) recording.emplace(graph.saved);
  {
    const AutocastScope autocast(options_.precision, options_.device.type());
    graph.root = parts_[part - begin()]->part()->Forward(graph.leaves, pass).contiguous();
  }
  const bool ends = last() && part + 1 == end();
  // A value that is still there may be on its way to another stage: it stays as it is.
  if (!again || ends || !work.values.contains(part)) work.values[part] = graph.root.detach();
  if (ends) EvaluateLoss(work, graph, pass.micro_batch, again);
  if (plan_.trains) work.graphs[part] = std::move(graph);
}

void TorchStage::EvaluateLoss(Work& work, Graph& graph, std::uint32_t micro_batch, bool again) {
  const torch::Tensor output = graph.root.to(torch::kFloat32);
  if (!plan_.trains) {
    const Score score = model_.loss->Evaluate(output, work.target);
    outcome_.score.correct += score.correct;
    outcome_.score.samples += score.samples;
  }
  const torch::Tensor loss = model_.loss->Sum(output, work.target);
  // Read when the step is over: a GPU would have nothing to do meanwhile.
  if (!again) losses_.emplace_back(micro_batch, loss.detach());
  graph.root = loss / StepSamples();
}

Result<StageOutcome> TorchStage::Outcome() {
  FOREBAY_TRY(Guarded("loss", [&] {
    for (const auto& [micro_batch, loss] : losses_) {
      const double value = loss.item<double>();
      outcome_.loss_sum += value;
      if (!std::isfinite(value)) outcome_.not_finite.push_back(micro_batch);
    }
    losses_.clear();
    SynchroniseComputation(options_.device);
  }));
  return outcome_;
}

// The same draws as before, which are keyed; the statistics are recorded already.
void TorchStage::Recompute(std::uint32_t micro_batch, std::uint32_t part) {
  const torch::AutoGradMode gradients(true);
  Pass pass = PassOf(micro_batch, part);
  pass.statistics = nullptr;
  ForwardPart(work_[micro_batch], part, std::move(pass), true);
}

Status TorchStage::Backward(std::uint32_t micro_batch, std::uint32_t module) {
  return Guarded("backward pass", [&] {
    Work& work = work_[micro_batch];
    const bool whole = module == kAllModules;
    if (whole || module + 1 == end()) SumArrived(work);
    for (std::uint32_t part = whole ? end() : module + 1; part-- > (whole ? begin() : module);) {
      BackwardPart(work, part);
      // While they are in the caches.
      gradient_.Take(part - begin());
    }
    if (!whole && module != begin()) return;
    for (auto& [edge, tensor] : work.leaving) tensor = tensor.contiguous();
    work.sums.clear();
    gradient_.EndMicroBatch(plan_.MicroBatchesPerReplica());
  });
}

// Gradients from later stages, last user first, before those of users in this stage.
void TorchStage::SumArrived(Work& work) {
  std::vector<std::uint32_t> edges;
  for (const auto& [edge, tensor] : work.arrived) edges.push_back(edge);
  std::ranges::sort(edges, std::greater(), [&](std::uint32_t edge) {
    return EdgeOf(edge).to_modules.back();
  });
  for (const std::uint32_t edge : edges) {
    AddGradient(work.sums[EdgeOf(edge).from_module],
                OnDevice(work.arrived[edge], options_.device));
  }
}

void TorchStage::BackwardPart(Work& work, std::uint32_t part) {
  Graph& graph = work.graphs.at(part);
  graph.saved.clear();  // all are back; autograd frees one after the other
  // What begins the model may have nothing to learn, and passes no gradient on.
  const bool learns = graph.root.requires_grad();
  if (last() && part + 1 == end()) {
    if (learns) torch::autograd::backward({graph.root}, {});
  } else {
    if (learns) torch::autograd::backward({graph.root}, {work.sums.at(part)});
    work.sums.erase(part);
  }
  const std::size_t first = part == 0 ? 1 : 0;  // the micro-batch's input has no gradient
  for (std::size_t at = 0; at < sources_[part].size(); ++at) {
    const std::uint32_t source = sources_[part][at];
    torch::Tensor gradient = graph.leaves[first + at].grad();
    if (!gradient.defined()) gradient = torch::zeros_like(graph.leaves[first + at]);
    if (source >= begin()) {
      AddGradient(work.sums[source], gradient);
      continue;
    }
    for (const auto& [edge, tensor] : work.received) {
      const StageEdge& crossed = EdgeOf(edge);
      if (crossed.from_module == source &&
          std::ranges::find(crossed.to_modules, part) != crossed.to_modules.end()) {
        AddGradient(work.leaving[edge], gradient);
      }
    }
  }
  graph = {};
}

Result<std::span<const std::byte>> TorchStage::Outgoing(const Buffer& buffer) {
  Work& work = work_[buffer.micro_batch];
  const std::uint32_t part = EdgeOf(buffer.edge).from_module;
  const bool is_value = buffer.kind == BufferKind::kOutput;
  const torch::Tensor& tensor = is_value ? work.values.at(part) : work.leaving.at(buffer.edge);
  if (tensor.is_cpu()) return BytesOf(tensor);
  torch::Tensor& sent = is_value ? work.sent_values[part] : work.sent_gradients[buffer.edge];
  FOREBAY_TRY(Guarded("message", [&] {
    if (!sent.defined()) sent = tensor.cpu();
  }));
  return BytesOf(sent);
}

Result<std::span<std::byte>> TorchStage::Incoming(const Buffer& buffer) {
  Work& work = work_[buffer.micro_batch];
  torch::Tensor& tensor = buffer.kind == BufferKind::kReceived ? work.received[buffer.edge]
                                                               : work.arrived[buffer.edge];
  tensor = RoomFor(buffer.micro_batch, EdgeOf(buffer.edge).from_module);
  return std::span<std::byte>(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
}

void TorchStage::Release(const Buffer& buffer) {
  const auto found = work_.find(buffer.micro_batch);
  if (found == work_.end()) return;
  Work& work = found->second;
  switch (buffer.kind) {
    case BufferKind::kInput: work.input = torch::Tensor(); break;
    case BufferKind::kTarget: work.target = torch::Tensor(); break;
    case BufferKind::kSaved:
      if (buffer.module == kAllModules) {
        work.graphs.clear();
        work.values.clear();
      }
      work.graphs.erase(buffer.module);
      break;
    case BufferKind::kValue: work.values.erase(buffer.module); break;
    case BufferKind::kReceived: work.received.erase(buffer.edge); break;
    case BufferKind::kOutput:
      work.values.erase(EdgeOf(buffer.edge).from_module);
      work.sent_values.erase(EdgeOf(buffer.edge).from_module);
      break;
    case BufferKind::kArrivedGradient: work.arrived.erase(buffer.edge); break;
    case BufferKind::kLeavingGradient:
      work.leaving.erase(buffer.edge);
      work.sent_gradients.erase(buffer.edge);
      break;
    case BufferKind::kReduced: break;  // the collective's own
  }
}

Result<std::unique_ptr<PendingCollective>> TorchStage::MakeCollective(std::uint32_t id,
                                                                      const CollectiveTag& tag) {
  const Collective& collective = plan_.collectives[id];
  FOREBAY_ASSIGN(Members members, MakeMembers(collective.members, rank_));
  switch (collective.kind) {
    case CollectiveKind::kGradients: {
      std::span<float> bucket;
      FOREBAY_TRY(Guarded("reduction", [&] {
        bucket = gradient_.NextBucket(collective.bytes / sizeof(float));
      }));
      return std::unique_ptr<PendingCollective>(
          std::make_unique<AllReduce<float>>(std::move(members), tag, bucket));
    }
    case CollectiveKind::kStatistics: {
      const std::size_t share = statistics_.floats() * plan_.MicroBatchesPerReplica();
      const auto own = std::span(batch_statistics_).subspan(members.self * share, share);
      own_statistics_.assign(own.begin(), own.end());
      return std::unique_ptr<PendingCollective>(std::make_unique<AllGather>(
          std::move(members), tag, std::as_bytes(std::span(own_statistics_)),
          std::as_writable_bytes(std::span(batch_statistics_))));
    }
    case CollectiveKind::kNorms: break;
  }
  own_norms_.assign(model_.parts.size(), 0.0);
  FOREBAY_TRY(Guarded("norm", [&] {
    for (std::size_t at = 0; at < parts_.size(); ++at) {
      own_norms_[begin() + at] = gradient_.SquaredNormOf(at);
    }
  }));
  all_norms_.assign(model_.parts.size() * members.count(), 0.0);
  return std::unique_ptr<PendingCollective>(std::make_unique<AllGather>(
      std::move(members), tag, std::as_bytes(std::span(own_norms_)),
      std::as_writable_bytes(std::span(all_norms_))));
}

Status TorchStage::EndCollective(std::uint32_t) { return {}; }

// All holders of what a buffer of the plan stands for. A value is also held by the graphs of the
// part and of its users, which need it back no earlier than the plan says. What a graph saves of
// its inputs and its output is theirs.
std::vector<const torch::Tensor*> TorchStage::TensorsOf(const Work& work,
                                                        const Buffer& buffer) const {
  std::vector<const torch::Tensor*> tensors;
  if (buffer.kind == BufferKind::kSaved) {
    for (const auto& [part, graph] : work.graphs) {
      if (part != buffer.module && buffer.module != kAllModules) continue;
      for (const std::shared_ptr<SavedTensor>& saved : graph.saved) {
        const auto same = [&](const torch::Tensor& other) {
          return SharesStorage(saved->tensor, other);
        };
        const auto value = work.values.find(part);
        const bool others = std::ranges::any_of(graph.leaves, same) ||
                            (value != work.values.end() && same(value->second));
        if (!others) tensors.push_back(&saved->tensor);
      }
    }
    return tensors;
  }
  const auto value = work.values.find(buffer.module);
  if (value == work.values.end()) return tensors;
  tensors.push_back(&value->second);
  const auto add = [&](const torch::Tensor& holder) {
    if (SharesStorage(holder, value->second)) tensors.push_back(&holder);
  };
  for (const auto& [part, graph] : work.graphs) {
    const std::vector<std::uint32_t>& sources = sources_[part];
    const bool user = std::ranges::find(sources, buffer.module) != sources.end();
    if (part == buffer.module) add(graph.root);
    if (user) std::ranges::for_each(graph.leaves, add);
    if (!user && part != buffer.module) continue;
    for (const std::shared_ptr<SavedTensor>& saved : graph.saved) add(saved->tensor);
  }
  return tensors;
}

Status TorchStage::AwaitBack(const Buffer& buffer) {
  return Guarded("swapping in", [&] {
    swap_->AwaitBack({buffer.kind, buffer.micro_batch, buffer.module});
  });
}

Status TorchStage::Move(Op op, const Buffer& buffer) {
  Work& work = work_[buffer.micro_batch];
  const bool whole = buffer.module == kAllModules;
  const SwapKey key{buffer.kind, buffer.micro_batch, buffer.module};
  Status done;
  const Status guarded = Guarded("moving what is saved", [&] {
    switch (op) {
      case Op::kSwapOut: done = swap_->Out(key, TensorsOf(work, buffer)); break;
      case Op::kSwapEnd: swap_->EndOut(key); break;
      case Op::kSwapIn: swap_->In(key); break;
      case Op::kDrop:
        if (whole) work.graphs.clear();
        work.graphs.erase(buffer.module);
        break;
      case Op::kRecompute:
        for (std::uint32_t part = whole ? begin() : buffer.module;
             part < (whole ? end() : buffer.module + 1); ++part) {
          Recompute(buffer.micro_batch, part);
        }
        break;
      default: FOREBAY_CHECK(false);
    }
  });
  FOREBAY_TRY(guarded);
  return done;
}

void TorchStage::ApplyStatistics() {
  if (statistics_.empty()) return;
  const std::uint32_t followed =
      options_.first_replica_statistics ? plan_.MicroBatchesPerReplica() : plan_.micro_batches;
  for (std::uint32_t micro_batch = 0; micro_batch < followed; ++micro_batch) {
    statistics_.Apply(std::span(batch_statistics_)
                          .subspan(statistics_.floats() * micro_batch, statistics_.floats()));
  }
}

// Squares of the parts' norms, each from the stage that has it, in a tree over the parts.
double TorchStage::SquaredGradientNorm() {
  const std::size_t count = model_.parts.size();
  std::vector<double> norms(count);
  for (std::size_t at = 0; at < parts_.size() && all_norms_.empty(); ++at) {
    norms[begin() + at] = gradient_.SquaredNormOf(at);
  }
  for (std::size_t at = 0; at < all_norms_.size(); ++at) norms[at % count] += all_norms_[at];
  std::vector<double*> leaves;
  for (double& norm : norms) leaves.push_back(&norm);
  SumTree<double>(leaves, 1);
  all_norms_.clear();
  return norms[0];
}

Status TorchStage::Update() {
  return Guarded("update", [&] {
    double scale = 1.0;
    if (options_.clip_norm > 0 || options_.skips_not_finite) {
      const double squared = SquaredGradientNorm();
      outcome_.skipped = !std::isfinite(squared);
      scale = ClipScale(squared, options_.clip_norm);
    } else {
      // Other stages may update theirs: the run ends with this step.
      outcome_.skipped = !gradient_.IsFinite();
    }
    if (outcome_.skipped) return;
    ApplyStatistics();
    const UpdateStep update{.learning_rate = step_.learning_rate,
                            .weight_decay = options_.weight_decay,
                            .gradient_scale = scale,
                            .number = step_.step + 1};
    gradient_.Update(options_.optimiser, update);
  });
}

}  // namespace forebay::train
