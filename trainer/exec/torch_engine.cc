// The engine of the training loop. Making it measures the model, the links and the machine, chooses
// where to cut the model and what to swap for each layout of the run, and checks all plans, so that
// a run does not fail at its first switch of layouts hours later. After that a step is: cut the
// batch into micro-batches, run the trainer, take its account.
#include "trainer/exec/torch_engine.h"

#include <fmt/format.h>

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/comm/link_probe.h"
#include "trainer/core/checkpoint/numeric_identity.h"
#include "trainer/core/config/layout_plan.h"
#include "trainer/core/config/memory_choice.h"
#include "trainer/core/without_exceptions.h"
#include "trainer/exec/device/device.h"
#include "trainer/exec/device/device_feed.h"
#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/measure/measure_costs.h"
#include "trainer/exec/measure/measure_model.h"
#include "trainer/exec/model_task.h"
#include "trainer/exec/step_source.h"
#include "trainer/schedule/split_search.h"

namespace forebay::train {
namespace {

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

// Runs `work`, which may throw. Unlike WithoutExceptions, it also adds the action to errors that
// `work` returns.
template <typename Work>
auto Guarded(const char* what, Work&& work) -> decltype(work()) {
  try {
    auto result = work();
    if (!result.has_value()) return result.error().WithContext(what);
    return result;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, fmt::format("{}: {}", what, error.what()));
  }
}

// The configuration has been checked; here it only changes its form.
HybridOptions OptionsOf(const TrainConfig& config, const LayoutPlan& plan,
                        const Optimiser& optimiser, std::uint64_t probed_bucket_bytes) {
  HybridOptions options;
  options.stage.seed = static_cast<std::uint64_t>(config.train.seed);
  options.stage.optimiser = {.optimiser = &optimiser,
                             .momentum = config.train.momentum,
                             .beta1 = config.train.beta1,
                             .beta2 = config.train.beta2,
                             .epsilon = config.train.epsilon};
  options.stage.weight_decay = config.train.weight_decay;
  options.stage.clip_norm = config.train.clip_norm;
  if (config.train.exactness == "fast") options.stage.sum_order = SumOrder::kLeftToRight;
  options.stage.skips_not_finite = config.train.nan_policy == "skip";
  options.stage.first_replica_statistics = config.train.normalisation == "per_worker";
  // Of a layout without a number of its own.
  options.micro_batches = plan.MicroBatchesOf(plan.first);
  // The order is the precedence: the user's size wins over the probe, and the probe over the
  // default.
  if (probed_bucket_bytes > 0) options.bucket_bytes = probed_bucket_bytes;
  if (config.run.bucket_kib > 0) {
    options.bucket_bytes = static_cast<std::uint64_t>(config.run.bucket_kib) * 1024;
  }
  options.timeout_ns =
      static_cast<std::uint64_t>(config.run.communication_timeout_s) * 1'000'000'000;
  return options;
}

// Which steps are traced, and where to.
Result<TraceOptions> TraceOf(const RunConfig& run) {
  TraceOptions trace{.path = run.trace_file, .steps = {}};
  if (trace.path.empty()) return trace;
  const Result<StepRange> steps = ParseStepRange(run.trace_steps);
  if (!steps.has_value()) return steps.error().WithContext("run.trace_steps");
  trace.steps = *steps;
  return trace;
}

// Of the process, so far.
std::uint64_t PeakResidentBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

class TorchEngine final : public Engine {
 public:
  using Print = std::function<void(const std::string&)>;
  static Result<std::unique_ptr<Engine>> Make(const TrainConfig& config,
                                              std::shared_ptr<const ModelTask> task,
                                              Communicator& communicator, const Print& print);

  Layout layout() const override { return trainer_->layout().layout; }
  Metric metric() const override { return task_->metric; }
  Status Switch(const Layout& layout) override;

  Result<BatchOutcome> TrainStep(FeedBatch& batch, double learning_rate) override {
    return Guarded("training step", [&] { return Train(batch, learning_rate); });
  }
  void Prepare(FeedBatch& batch) const override {
    try {
      StepSource::Prepare(*task_, device_feed_.get(), batch);
    } catch (const std::exception&) {
      batch.prepared.reset();  // the step makes it, or says why it cannot
    }
  }
  Result<BatchOutcome> EvaluateStep(FeedBatch& batch) override {
    return Guarded("evaluation step", [&] { return Evaluate(batch); });
  }

  Status Save(Checkpoint& checkpoint) override {
    return WithoutExceptions("weights and optimiser state", [&] { return Copy(checkpoint); });
  }
  Status Load(const CheckpointReader& checkpoint) override {
    return WithoutExceptions(checkpoint.folder().string(), [&] { return Read(checkpoint); });
  }
  Result<std::uint64_t> Digest() override {
    return WithoutExceptions("weights digest", [&] { return trainer_->Digest(); });
  }

  StepAccount last_step() const override { return last_step_; }
  StepForecast forecast() const override { return trainer_->forecast(); }
  Status Finish() override { return trainer_->FinishTrace(); }

 private:
  TorchEngine(const TrainConfig& config, std::shared_ptr<const ModelTask> task,
              Communicator& communicator)
      : config_(config), communicator_(communicator), task_(std::move(task)) {}

  Status Measure();
  const ModelMeasure& MeasureOf(const Layout& layout) const {
    return measures_.at(plan_.MicroBatchOf(layout));
  }
  Status Probe(const Print& print);
  Status LayOut(const Print& print);
  Result<HybridOptions> MakeOptions();
  Result<StageSplit> SplitFor(const Layout& layout, const HybridOptions& options);
  Result<StageSplit> FindBalancedSplit(const Layout& layout, const HybridOptions& options);
  HybridLayout LayoutOf(const Layout& layout, StageSplit split) const;
  Result<BatchOutcome> Train(FeedBatch& batch, double learning_rate);
  Result<BatchOutcome> Evaluate(FeedBatch& batch);
  Status Copy(Checkpoint& checkpoint);
  Status Read(const CheckpointReader& checkpoint);
  std::string Library() const;
  std::string Identity() const;
  Status CheckOrigin(const Checkpoint& checkpoint) const;

  TrainConfig config_;
  Communicator& communicator_;
  std::shared_ptr<const ModelTask> task_;
  LayoutPlan plan_;
  const Optimiser* optimiser_ = nullptr;
  Precision precision_ = Precision::kFp32;
  torch::Device device_ = torch::kCPU;
  std::unique_ptr<DeviceFeed> device_feed_;  // to a GPU; null: the processor computes
  std::map<std::uint32_t, ModelMeasure> measures_;  // rank 0's, by samples of a micro-batch
  LinkProbe links_;
  std::optional<MemoryChoices> memory_;    // where anything may be moved away
  std::vector<HybridLayout> layouts_;  // of the plan
  std::unique_ptr<HybridTrainer> trainer_;
  // Of the last training step: what the next one needs again.
  Layout cut_layout_;
  StepCut cut_;
  // Whether a step has shown that nothing writes to its tensors, so that those of the next may lie
  // in the feed's read-only memory.
  bool trains_borrowed_ = false;
  bool evaluates_borrowed_ = false;
  StepAccount last_step_;
};

Result<std::unique_ptr<Engine>> TorchEngine::Make(const TrainConfig& config,
                                                  std::shared_ptr<const ModelTask> task,
                                                  Communicator& communicator,
                                                  const Print& print) {
  // The model is named first: what follows may take minutes.
  if (print && communicator.rank() == 0) {
    print("model " + (task->description.empty() ? task->model.name : task->description));
  }
  // In this order: the plan of layouts, what is measured for them, and then the plans.
  std::unique_ptr<TorchEngine> engine(new TorchEngine(config, std::move(task), communicator));
  FOREBAY_ASSIGN(engine->plan_, MakeLayoutPlan(config, communicator.size()));
  FOREBAY_ASSIGN(engine->optimiser_, FindOptimiser(config.train.optimiser));
  FOREBAY_ASSIGN(engine->precision_, ParsePrecision(config.train.precision));
  FOREBAY_ASSIGN(engine->device_, ChooseDevice(config.run.device, communicator.local_rank()));
  if (!engine->device_.is_cpu()) {
    engine->device_feed_ = std::make_unique<DeviceFeed>(
        engine->device_, communicator.rank() == 0 ? print : Print());
  }
  FOREBAY_TRY(engine->Measure());
  FOREBAY_TRY(engine->Probe(print));
  FOREBAY_TRY(engine->LayOut(print));
  return std::unique_ptr<Engine>(std::move(engine));
}

// All ranks measure at the same time, as they will share caches and memory's bandwidth in a step;
// rank 0's figures count, so that all plan alike.
Status TorchEngine::Measure() {
  for (const Layout& layout : plan_.Layouts()) {
    const std::uint32_t samples = plan_.MicroBatchOf(layout);
    // Layouts with micro-batches of one size share a measurement.
    const auto [found, added] = measures_.try_emplace(samples);
    if (!added) continue;
    // Together from here on: a rank that measures alone would see caches and bandwidth that it will
    // not have in a step.
    FOREBAY_TRY(communicator_.Barrier());
    FOREBAY_ASSIGN(found->second,
                   MeasureModel(task_->model, OnDevice(ZeroInput(*task_, samples), device_),
                                OnDevice(ZeroTarget(*task_, samples), device_), NowNs,
                                precision_));
    FOREBAY_TRY(ShareMeasure(found->second, task_->model.parts.size(), communicator_));
  }
  return {};
}

// Buckets are tried with the first layout that has replicas.
Status TorchEngine::Probe(const Print& print) {
  ProbeRequest request{.gradient_bytes = 0, .now_ns = NowNs};
  const std::vector<Layout> layouts = plan_.Layouts();
  const auto replicated = std::ranges::find_if(
      layouts, [](const Layout& layout) { return layout.replicas > 1; });
  if (replicated != layouts.end() && config_.run.bucket_kib == 0) {
    request.stages = replicated->stages;
    for (const ModuleProfile& module : MeasureOf(plan_.first).graph.modules) {
      // A stage's share, roughly: the cut is not known yet.
      request.gradient_bytes += module.parameter_bytes / request.stages;
    }
  }
  FOREBAY_ASSIGN(links_, ProbeLinks(communicator_, request));
  if (print && communicator_.rank() == 0 && communicator_.size() > 1) {
    print("links: " + Describe(links_));
  }
  return {};
}

// Options that need a measurement or a further section of the configuration.
Result<HybridOptions> TorchEngine::MakeOptions() {
  HybridOptions options = OptionsOf(config_, plan_, *optimiser_, links_.bucket_bytes);
  options.stage.precision = precision_;
  options.stage.device = device_;
  FOREBAY_ASSIGN(options.costs, MeasureCosts({.links = links_,
                                              .optimiser = options.stage.optimiser,
                                              .bucket_bytes = options.bucket_bytes,
                                              .device = device_,
                                              .now_ns = NowNs},
                                             communicator_));
  FOREBAY_ASSIGN(options.trace, TraceOf(config_.run));
  FOREBAY_ASSIGN(const MemorySettings memory, ParseMemory(config_.memory));
  // Without limits or a policy the engine keeps everything, and no choice is asked for.
  if (!memory.active()) return options;
  // Where saved tensors cannot be recorded they cannot be swapped either.
  memory_.emplace(memory, options.costs, MeasureOf(plan_.first).saved_exactly);
  options.stage.swap.pool_bytes = memory.host_bytes;
  options.keeping = [this](const StepPlan& plan) { return memory_->Choose(plan); };
  return options;
}

// Chooses a cut for every layout of the run, makes the trainer on the first, and checks the others.
Status TorchEngine::LayOut(const Print& print) {
  FOREBAY_ASSIGN(const HybridOptions options, MakeOptions());
  for (const Layout& layout : plan_.Layouts()) {
    // Each layout has a cut of its own; without stages there is none to choose.
    FOREBAY_ASSIGN(StageSplit split, SplitFor(layout, options));
    layouts_.push_back(LayoutOf(layout, std::move(split)));
  }
  FOREBAY_ASSIGN(trainer_, HybridTrainer::Make(task_->model, MeasureOf(plan_.first),
                                               communicator_, options, layouts_.front()));
  // Each plan of the run is built and proved now.
  for (const HybridLayout& layout : layouts_) FOREBAY_TRY(trainer_->Check(layout));
  if (memory_ && print && communicator_.rank() == 0) print(memory_->TakeReasons());
  return {};
}

// A layout of the configuration with all that the trainer needs to know of it.
HybridLayout TorchEngine::LayoutOf(const Layout& layout, StageSplit split) const {
  return {.layout = layout,
          .schedule = plan_.schedule,
          .split = std::move(split),
          .micro_batches = plan_.MicroBatchesOf(layout),
          .measure = &MeasureOf(layout)};
}

// One stage needs no cut; layout.split is for layouts with as many stages as it has entries; all
// others are balanced by the measurement.
Result<StageSplit> TorchEngine::SplitFor(const Layout& layout, const HybridOptions& options) {
  const std::size_t parts = task_->model.parts.size();
  if (layout.stages > parts) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("layout.stages = {}: {} has {} parts, so that at most as many "
                             "stages are possible",
                             layout.stages, task_->model.name, parts));
  }
  if (layout.stages == 1) return StageSplit{.begins = {0}};
  if (plan_.split.size() != layout.stages) return FindBalancedSplit(layout, options);
  if (plan_.split.back() >= parts) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("layout.split = \"{}\": {} has the parts 0 to {}",
                             config_.layout.split, task_->model.name, parts - 1));
  }
  return StageSplit{.begins = plan_.split};
}

// The fastest cut; of those that meet the budget, where there is one.
Result<StageSplit> TorchEngine::FindBalancedSplit(const Layout& layout,
                                                  const HybridOptions& options) {
  const ModelMeasure& measure = MeasureOf(layout);
  SplitCosts costs;
  costs.message_ns_per_byte = links_.ns_per_byte;
  costs.message_ns = links_.message_ns;
  // A replica's share: the search is about one pipeline, and all replicas are alike.
  costs.micro_batches = plan_.MicroBatchesOf(layout) / layout.replicas;
  costs.parameter_copies = ParameterCopies(optimiser_->state_count(), costs.micro_batches);
  costs.replicas = layout.replicas;
  costs.schedule = plan_.schedule;
  // Without a budget the fastest cut is enough, and no plan needs to be built to choose it.
  if (!memory_ || memory_->budget_bytes() == 0) {
    FOREBAY_ASSIGN(SplitChoice choice, FindSplit(measure.graph, layout.stages, costs));
    return std::move(choice.split);
  }
  costs.budget_bytes = memory_->budget_bytes();
  FOREBAY_ASSIGN(const std::vector<StageSplit> splits,
                 FindSplitsWithin(measure.graph, layout.stages, costs));
  return memory_->ChooseSplit(splits, [&](const StageSplit& split) {
    return BuildLayoutPlan(LayoutOf(layout, split), measure, options, true,
                           plan_.MicroBatchesOf(layout));
  });
}

// Only layouts of the plan have a cut.
Status TorchEngine::Switch(const Layout& layout) {
  const auto found = std::ranges::find_if(
      layouts_, [&](const HybridLayout& known) { return known.layout == layout; });
  if (found == layouts_.end()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("layout {} is not in this run's plan", ToString(layout)));
  }
  // Another part may come first, or last, on this rank.
  trains_borrowed_ = evaluates_borrowed_ = false;
  return Guarded("switch of layouts", [&] { return trainer_->Switch(*found); });
}

// From the batch to the outcome of the step, with the time that the conversion took.
Result<BatchOutcome> TorchEngine::Train(FeedBatch& batch, double learning_rate) {
  const std::uint64_t began_ns = NowNs();
  // All steps of an epoch have the same cut, so it is kept.
  if (cut_.counts.empty() || cut_layout_ != layout() || cut_.samples != batch.sample_count) {
    FOREBAY_ASSIGN(std::vector<std::uint32_t> counts,
                   TrainingCounts(layout(), plan_.MicroBatchesOf(layout()),
                                  plan_.MicroBatchOf(layout()), batch.sample_count));
    cut_layout_ = layout();
    cut_ = StepCut(layout(), communicator_.rank(), std::move(counts));
  }
  FOREBAY_ASSIGN(StepSource source, StepSource::Make(*task_, cut_, device_feed_.get(), batch,
                                                     trains_borrowed_));
  const std::uint64_t fed_ns = NowNs();
  FOREBAY_ASSIGN(StageOutcome outcome, trainer_->TrainStep(learning_rate, cut_.counts, source));
  FOREBAY_TRY(source.CheckUnwritten());
  // The first step has copied its tensors. A model that writes to them has failed above, instead of
  // at memory that cannot be written.
  trains_borrowed_ = true;
  last_step_ = trainer_->last_account();
  last_step_.at(TimeClass::kFeed) = fed_ns - began_ns;
  // The trainer's account begins behind the feed, which is part of the step for the user.
  last_step_.step_ns += fed_ns - began_ns;
  last_step_.peak_bytes = PeakResidentBytes();
  return BatchOutcome{.loss_sum = outcome.loss_sum,
                      .samples = std::uint64_t{batch.sample_count} * layout().replicas,
                      .skipped = outcome.skipped,
                      .not_finite = std::move(outcome.not_finite)};
}

// A short last step is cut into micro-batches of its own.
Result<BatchOutcome> TorchEngine::Evaluate(FeedBatch& batch) {
  std::uint64_t samples = batch.step_samples;
  if (samples == 0) samples = std::uint64_t{batch.sample_count} * layout().replicas;
  // No rank has a sample of such a step, so no rank takes part in a collective call of it.
  if (samples == 0) return BatchOutcome{};
  const StepCut cut(layout(), communicator_.rank(),
                    EvaluationCounts(layout(), plan_.MicroBatchOf(layout()), samples));
  FOREBAY_ASSIGN(StepSource source, StepSource::Make(*task_, cut, device_feed_.get(), batch,
                                                     evaluates_borrowed_));
  FOREBAY_ASSIGN(const StageOutcome outcome, trainer_->Evaluate(cut.counts, source));
  FOREBAY_TRY(source.CheckUnwritten());
  evaluates_borrowed_ = true;
  return BatchOutcome{.loss_sum = outcome.loss_sum,
                      .score_sum = outcome.score.sum,
                      .samples = outcome.score.samples};
}

// The device belongs to it, because GPUs of another kind compute other bits.
std::string TorchEngine::Library() const {
  const std::string device = DescribeDevice(device_);
  return "LibTorch " TORCH_VERSION + (device.empty() ? "" : " on " + device);
}

// Where results depend on the layout, all layouts of the run are part of the identity.
std::string TorchEngine::Identity() const {
  std::string layouts = PlanDependence(config_);
  if (!layouts.empty()) layouts += ": " + plan_.Text();
  return ToText({.threads = static_cast<std::uint32_t>(at::get_num_threads()),
                 .micro_batch = plan_.micro_batch,
                 .library = Library(),
                 .precision = precision_,
                 .exact = config_.train.exactness == "exact",
                 .layouts = std::move(layouts)});
}

// Copies every tensor that this rank has to write into the checkpoint.
Status TorchEngine::Copy(Checkpoint& checkpoint) {
  checkpoint.model = task_->model.name;
  checkpoint.optimiser = optimiser_->name;
  checkpoint.optimiser_states = {optimiser_->states.begin(), optimiser_->states.end()};
  checkpoint.identity = Identity();
  checkpoint.tensors.clear();
  // Replicas hold the same: the first one's ranks write.
  if (layout().ReplicaOf(communicator_.rank()) != 0) return {};
  // Weights first, so that programs that read only these find them together.
  std::array<std::vector<CheckpointTensor>, 3> kinds;  // weights, buffers, states
  for (HeldPart* const part : trainer_->HeldParts()) {
    for (HeldTensor& held : part->Tensors()) {
      // A copy: training goes on while the checkpoint is written.
      const auto raw = std::as_bytes(held.values);
      CheckpointTensor tensor;
      tensor.name = std::move(held.name);
      tensor.shape = std::move(held.shape);
      tensor.bytes.assign(raw.begin(), raw.end());
      kinds[static_cast<std::size_t>(held.kind)].push_back(std::move(tensor));
    }
  }
  for (std::vector<CheckpointTensor>& kind : kinds) {
    std::ranges::move(kind, std::back_inserter(checkpoint.tensors));
  }
  return {};
}

// Another model or optimiser has other tensors, which nothing can make up for. Another identity
// only changes bits, which the user may accept.
Status TorchEngine::CheckOrigin(const Checkpoint& checkpoint) const {
  if (checkpoint.model != task_->model.name || checkpoint.optimiser != optimiser_->name) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the checkpoint is of \"{}\" with {}, this run of \"{}\" with {}",
                             checkpoint.model, checkpoint.optimiser, task_->model.name,
                             optimiser_->name));
  }
  const std::string identity = Identity();
  // A checkpoint without an identity has nothing to compare.
  if (config_.checkpoint.force_identity || checkpoint.identity.empty() ||
      checkpoint.identity == identity) {
    return {};
  }
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("the checkpoint was made with \"{}\", this run has \"{}\": the weights "
                           "would end otherwise than they would have. Set run.threads, "
                           "layout.micro_batch, train.precision and train.exactness as "
                           "there, or "
                           "checkpoint.force_identity = true",
                           checkpoint.identity, identity));
}

// Every rank reads the tensors of its own parts.
Status TorchEngine::Read(const CheckpointReader& checkpoint) {
  FOREBAY_TRY(CheckOrigin(checkpoint.state()));
  // All are looked up before the first is read: a checkpoint of something else changes nothing.
  std::vector<HeldTensor> wanted;
  for (HeldPart* const part : trainer_->HeldParts()) {
    std::ranges::move(part->Tensors(), std::back_inserter(wanted));
  }
  for (const HeldTensor& held : wanted) {
    const TensorEntry* const entry = checkpoint.Find(held.name);
    if (entry == nullptr || entry->dtype != "F32" || entry->shape != held.shape ||
        entry->end - entry->begin != held.values.size_bytes()) {
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("the checkpoint has no tensor {} of {} floats", held.name,
                               held.values.size()));
    }
  }
  for (const HeldTensor& held : wanted) {
    FOREBAY_TRY(checkpoint.Read(held.name, std::as_writable_bytes(held.values)));
  }
  // The values were read into memory of the host; the device gets them now.
  for (HeldPart* const part : trainer_->HeldParts()) part->Publish();
  // The optimiser's corrections and the random numbers of a step depend on its number.
  trainer_->ResumeAt(checkpoint.state().global_step);
  return {};
}

}  // namespace

// The choice without an engine, for what comes before there is one.
Result<bool> ComputesOnGpu(std::string_view name, std::uint32_t local_rank) {
  const auto chosen = Guarded("device", [&] { return ChooseDevice(name, local_rank); });
  if (!chosen.has_value()) return chosen.error();
  return !chosen->is_cpu();
}

Result<std::unique_ptr<Engine>> MakeTorchEngine(
    const TrainConfig& config, std::shared_ptr<const ModelTask> task, Communicator& communicator,
    const std::function<void(const std::string&)>& print) {
  return Guarded("building the network", [&] {
    return TorchEngine::Make(config, std::move(task), communicator, print);
  });
}

}  // namespace forebay::train
