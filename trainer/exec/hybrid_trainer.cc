// One step: the plan runner executes this rank's list with the stage as its worker, then losses and
// scores are summed over all ranks. A layout switch: build and check the new plan first, so that an
// illegal one changes nothing; make the parts that this rank will hold; send each part from the
// lowest rank that has it to all that need it; drop what is no longer held. Parts carry weights,
// optimiser state and running statistics, so nothing else has to move.
#include "trainer/exec/hybrid_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "trainer/comm/collectives.h"
#include "trainer/schedule/checker/plan_checker.h"

namespace forebay::train {
namespace {

std::uint64_t MonotonicNs() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// What all ranks believe to be the samples of a micro-batch: its place in the data and its size.
// One hash for each micro-batch, computed on every rank from the same numbers.
std::vector<std::uint64_t> SampleHashes(const std::array<std::uint64_t, 3>& place,
                                        const std::vector<std::uint32_t>& samples) {
  std::vector<std::uint64_t> hashes;
  // Ranks that disagree about where a micro-batch begins must not exchange its activations.
  std::uint64_t first = 0;
  for (const std::uint32_t count : samples) {
    const std::array<std::uint64_t, 5> range = {place[0], place[1], place[2], first, count};
    hashes.push_back(Checksum(std::as_bytes(std::span(range))));
    first += count;
  }
  return hashes;
}

// Turns what the runner measured into the classes of a step's account. `drain_ns` is the time
// until a GPU had done what it was asked for, `idle_ns` the wait for the last rank.
StepAccount AccountOf(const RankReport& report, const SwapFigures& before,
                      const SwapFigures& after, std::uint64_t drain_ns, std::uint64_t idle_ns) {
  const RankTimes& times = report.times;
  StepAccount account;
  // The runner counts the update as computation; here it is a class of its own.
  account.at(TimeClass::kCompute) = times.compute_ns - report.update_ns + drain_ns;
  account.at(TimeClass::kRecompute) = times.recompute_ns;
  account.at(TimeClass::kOptimiser) = report.update_ns;
  account.at(TimeClass::kWaitRecv) = times.wait_message_ns;
  account.at(TimeClass::kWaitReduce) = times.wait_collective_ns;
  account.at(TimeClass::kSwapStall) = times.wait_swap_ns;
  account.at(TimeClass::kIdle) = idle_ns;
  account.plan_ns = report.step_ns + drain_ns + idle_ns;
  const auto sent = [&report](Lane lane) {
    return report.sent_bytes[static_cast<std::size_t>(lane)];
  };
  account.at(ByteChannel::kActivation) = sent(Lane::kActivation);
  account.at(ByteChannel::kGradient) = sent(Lane::kGradient);
  account.at(ByteChannel::kReduction) = sent(Lane::kReduction) + sent(Lane::kReductionReturn);
  account.at(ByteChannel::kSwap) =
      after.out_bytes - before.out_bytes + after.in_bytes - before.in_bytes;
  return account;
}

}  // namespace

// The plan first: a layout that cannot be planned costs no memory for weights.
Result<std::unique_ptr<HybridTrainer>> HybridTrainer::Make(const Model& model,
                                                           const ModelMeasure& measure,
                                                           Communicator& communicator,
                                                           const HybridOptions& options,
                                                           const HybridLayout& layout) {
  FOREBAY_TRY(CheckModel(model));
  std::unique_ptr<HybridTrainer> trainer(
      new HybridTrainer(model, measure, communicator, options));
  FOREBAY_ASSIGN(StepPlan plan, trainer->PlanFor(layout, true, trainer->MicroBatchesOf(layout)));
  FOREBAY_TRY(trainer->TakeParts(layout));
  FOREBAY_TRY(trainer->StandOn(layout, std::move(plan)));
  return trainer;
}

// Makes the stage of this rank under a plan that was checked, once the rank has the parts.
Status HybridTrainer::StandOn(const HybridLayout& layout, StepPlan plan) {
  // May fail, so it comes before anything is changed.
  FOREBAY_ASSIGN(predicted_, SimulatePlan(plan, options_.costs));
  layout_ = layout;
  plan_ = std::move(plan);
  stage_ = std::make_unique<TorchStage>(model_, plan_, layout_.split, communicator_.rank(),
                                        MeasureOf(layout_).outputs, HeldParts(),
                                        options_.stage);
  return {};
}

// From the simulated plan and the measured operations of this rank's parts.
StepForecast HybridTrainer::forecast() const {
  StepForecast forecast{.flops = 0,
                        .step_ns = predicted_.step_ns,
                        .bubble = predicted_.bubble,
                        .planned_bytes = PeaksByClass(plan_, communicator_.rank())};
  for (const auto& [part, held] : parts_) {
    forecast.flops += MeasureOf(layout_).flops.at(part) * plan_.MicroBatchesPerReplica();
  }
  return forecast;
}

Result<StepPlan> BuildLayoutPlan(const HybridLayout& layout, const ModelMeasure& measure,
                                 const HybridOptions& options, bool trains,
                                 std::uint32_t micro_batches) {
  PlanRequest request;
  FOREBAY_ASSIGN(request.stages, CutIntoStages(measure.graph, layout.split));
  request.layout = layout.layout;
  request.micro_batches = micro_batches;
  request.schedule = layout.schedule;
  request.trains = trains;
  // Copies of the parameters in the plan's memory.
  request.optimiser_states = options.stage.optimiser.optimiser->state_count();
  request.bucket_bytes = options.bucket_bytes;
  request.clips = options.stage.clip_norm > 0 || options.stage.skips_not_finite;
  return BuildPlan(request);
}

// Builds a plan, adds swaps and recomputation if the engine wants them, and proves the result.
Result<StepPlan> HybridTrainer::PlanFor(const HybridLayout& layout, bool trains,
                                        std::uint32_t micro_batches) const {
  if (layout.layout.ranks() != communicator_.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} replicas x {} stages need {} ranks; the job has {}",
                             layout.layout.replicas, layout.layout.stages,
                             layout.layout.ranks(), communicator_.size()));
  }
  FOREBAY_ASSIGN(StepPlan plan, BuildLayoutPlan(layout, MeasureOf(layout), options_, trains,
                                                micro_batches));
  // The engine's choice of what is swapped or recomputed; evaluations save nothing.
  if (trains && options_.keeping) {
    FOREBAY_ASSIGN(const StepKeeping choices, options_.keeping(plan));
    FOREBAY_ASSIGN(plan, MoveSaved(plan, choices));
    FOREBAY_TRY(InstallSavedTensorHooks());
  }
  // Every plan is proved before it runs, also those that our own builder made.
  FOREBAY_TRY(CheckPlan(plan, {}));
  return plan;
}

// A part belongs to one stage, and so to one rank of each replica.
bool HybridTrainer::Holds(const HybridLayout& layout, std::uint32_t rank,
                          std::uint32_t part) const {
  const std::uint32_t stage = layout.layout.StageOf(rank);
  const std::uint32_t begin = layout.split.begins[stage];
  const std::uint32_t end = stage + 1 < layout.split.stages()
                                ? layout.split.begins[stage + 1]
                                : static_cast<std::uint32_t>(model_.parts.size());
  return part >= begin && part < end;
}

// Makes the parts that this rank holds under `layout` and has not.
Status HybridTrainer::TakeParts(const HybridLayout& layout) {
  for (std::uint32_t part = 0; part < model_.parts.size(); ++part) {
    if (!Holds(layout, communicator_.rank(), part) || parts_.contains(part)) continue;
    FOREBAY_ASSIGN(parts_[part], HeldPart::Make(model_.parts[part], options_.stage.seed,
                                                *options_.stage.optimiser.optimiser,
                                                options_.stage.device));
  }
  return {};
}

std::vector<HeldPart*> HybridTrainer::HeldParts() const {
  std::vector<HeldPart*> held;
  for (const auto& [index, part] : parts_) held.push_back(part.get());
  return held;
}

Result<StageOutcome> HybridTrainer::Run(const StepPlan& plan, TorchStage& stage,
                                        const StageStep& step) {
  const bool traces = plan.trains && trace_.Covers(step.step);
  if (traces) FOREBAY_TRY(trace_.Begin(communicator_, MonotonicNs));
  // After the barrier that a trace begins with: waiting there is no part of the step.
  const std::uint64_t began_ns = MonotonicNs();
  const SwapFigures swapped = stage.swap_figures();
  stage.BeginStep(step);
  PlanRunner runner(plan, stage, communicator_.transport(),
                    {.timeout_ns = options_.timeout_ns,
                     .now_ns = MonotonicNs,
                     .traces = traces,
                     .progress = &communicator_.progress()});
  const StepIdentity identity{.step = runs_,
                              .samples_hashes = SampleHashes(step.source->Place(), step.samples)};
  // Evaluations count as well: no two runs of a plan have messages of one name.
  ++runs_;
  FOREBAY_ASSIGN(last_report_, runner.RunStep(identity));
  const std::uint64_t asked_ns = MonotonicNs();
  FOREBAY_ASSIGN(StageOutcome outcome, stage.Outcome());
  const std::uint64_t ran_ns = MonotonicNs();
  // Also the wait for the last rank, which the account calls idle.
  FOREBAY_TRY(ShareOutcome(outcome, plan.micro_batches));
  if (!plan.trains) return outcome;
  const std::uint64_t shared_ns = MonotonicNs();
  last_account_ = AccountOf(last_report_, swapped, stage.swap_figures(), ran_ns - asked_ns,
                            shared_ns - ran_ns);
  last_account_.step_ns = shared_ns - began_ns;
  if (traces) trace_.Add(step.step, plan, last_report_, predicted_);
  if (traces && step.step == options_.trace.steps.last) {
    FOREBAY_TRY(trace_.Write(communicator_));
  }
  return outcome;
}

// A run that was stopped has traced fewer steps than it was asked for: they are written now.
Status HybridTrainer::FinishTrace() {
  FOREBAY_TRY(trace_.Write(communicator_));
  return trace_.failure();
}

// Only last stages have losses: the sum over all ranks is the step's. Any stage may have met a
// gradient that is not finite.
Status HybridTrainer::ShareOutcome(StageOutcome& outcome, std::uint32_t micro_batches) {
  // One small reduction for all figures of a step.
  std::array<double, 4> sums = {outcome.loss_sum, outcome.score.sum,
                                static_cast<double>(outcome.score.samples),
                                outcome.skipped ? 1.0 : 0.0};
  FOREBAY_TRY(communicator_.AllReduceSum(std::span<double>(sums)));
  outcome.loss_sum = sums[0];
  outcome.score = {.sum = sums[1], .samples = static_cast<std::uint64_t>(sums[2])};
  outcome.skipped = sums[3] > 0;
  // Which micro-batches are at fault is asked only when there are some.
  if (std::isfinite(outcome.loss_sum)) return {};
  std::vector<double> flags(micro_batches);
  for (const std::uint32_t micro_batch : outcome.not_finite) flags[micro_batch] = 1;
  FOREBAY_TRY(communicator_.AllReduceSum(std::span<double>(flags)));
  outcome.not_finite.clear();
  for (std::uint32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    if (flags[micro_batch] > 0) outcome.not_finite.push_back(micro_batch);
  }
  return {};
}

// The number of micro-batches is part of the plan, so it cannot differ.
Result<StageOutcome> HybridTrainer::TrainStep(double learning_rate,
                                              const std::vector<std::uint32_t>& samples,
                                              MicroBatchSource& source) {
  if (samples.size() != plan_.micro_batches) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a step has {} micro-batches, {} came", plan_.micro_batches,
                             samples.size()));
  }
  FOREBAY_ASSIGN(StageOutcome outcome, Run(plan_, *stage_,
                                           {.step = steps_,
                                            .learning_rate = learning_rate,
                                            .samples = samples,
                                            .source = &source}));
  ++steps_;
  return outcome;
}

Result<StageOutcome> HybridTrainer::Evaluate(const std::vector<std::uint32_t>& samples,
                                             MicroBatchSource& source) {
  FOREBAY_ASSIGN(Evaluation* const evaluation,
                 EvaluationOf(static_cast<std::uint32_t>(samples.size())));
  return Run(evaluation->plan, *evaluation->stage,
             {.step = steps_, .learning_rate = 0, .samples = samples, .source = &source});
}

// Plans of evaluations are kept: a validation set has few different numbers of micro-batches.
Result<HybridTrainer::Evaluation*> HybridTrainer::EvaluationOf(std::uint32_t micro_batches) {
  const auto known = evaluations_.find(micro_batches);
  if (known != evaluations_.end()) return &known->second;
  FOREBAY_ASSIGN(StepPlan plan, PlanFor(layout_, false, micro_batches));
  Evaluation& evaluation = evaluations_[micro_batches];
  evaluation.plan = std::move(plan);
  evaluation.stage = std::make_unique<TorchStage>(model_, evaluation.plan, layout_.split,
                                                  communicator_.rank(),
                                                  MeasureOf(layout_).outputs, HeldParts(),
                                                  options_.stage);
  return &evaluation;
}

// The lowest rank that has the part sends it to every rank that needs it and has it not.
Status HybridTrainer::MovePart(std::uint32_t part, const HybridLayout& from,
                               const HybridLayout& to) {
  Members members;
  for (std::uint32_t rank = 0; rank < communicator_.size() && members.ranks.empty(); ++rank) {
    if (Holds(from, rank, part)) members.ranks.push_back(rank);
  }
  for (std::uint32_t rank = 0; rank < communicator_.size(); ++rank) {
    if (Holds(to, rank, part) && !Holds(from, rank, part)) members.ranks.push_back(rank);
  }
  const auto self = std::ranges::find(members.ranks, communicator_.rank());
  if (self == members.ranks.end() || members.ranks.size() == 1) return {};
  members.self = static_cast<std::uint32_t>(self - members.ranks.begin());
  HeldPart& held = *parts_.at(part);
  // Also on ranks that receive: the message's size follows from the part.
  std::vector<float> packed = held.Pack();
  const CollectiveTag tag{.step = runs_, .edge = part, .lane = Lane::kControl};
  Broadcast spread(std::move(members), tag, std::as_writable_bytes(std::span(packed)), 0);
  FOREBAY_TRY(Finish(spread, communicator_.transport(), options_.timeout_ns));
  if (Holds(from, communicator_.rank(), part)) return {};
  moved_bytes_ += packed.size() * sizeof(float);
  return held.Unpack(packed);
}

Status HybridTrainer::Check(const HybridLayout& layout) const {
  FOREBAY_TRY(PlanFor(layout, true, MicroBatchesOf(layout)));
  return {};
}

// Everything that may fail by itself comes before the first part moves.
Status HybridTrainer::Switch(const HybridLayout& layout) {
  FOREBAY_ASSIGN(StepPlan plan, PlanFor(layout, true, MicroBatchesOf(layout)));
  FOREBAY_TRY(TakeParts(layout));
  for (std::uint32_t part = 0; part < model_.parts.size(); ++part) {
    FOREBAY_TRY(MovePart(part, layout_, layout));
  }
  ++runs_;
  // They refer to parts that may go.
  evaluations_.clear();
  std::erase_if(parts_, [&](const auto& entry) {
    return !Holds(layout, communicator_.rank(), entry.first);
  });
  return StandOn(layout, std::move(plan));
}

// Every rank contributes the digests of the parts that it holds. Replicas must agree; the digest of
// the model is that of all parts in order.
Result<std::uint64_t> HybridTrainer::Digest() {
  // 0 for parts of other ranks; a digest of 0 is as unlikely as a collision.
  std::vector<std::uint64_t> own(model_.parts.size());
  for (const auto& [index, part] : parts_) own[index] = part->Digest();
  std::vector<std::uint64_t> all(own.size() * communicator_.size());
  AllGather gather(AllMembers(communicator_.transport()),
                   {.step = runs_, .edge = UINT32_MAX, .lane = Lane::kControl},
                   std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  FOREBAY_TRY(Finish(gather, communicator_.transport(), options_.timeout_ns));
  for (std::uint32_t part = 0; part < own.size(); ++part) {
    for (std::uint32_t rank = 0; rank < communicator_.size(); ++rank) {
      if (!Holds(layout_, rank, part)) continue;
      const std::uint64_t digest = all[rank * own.size() + part];
      // The first rank that holds the part; all others must have the same bits.
      if (own[part] == 0) own[part] = digest;
      if (own[part] == digest) continue;
      return Error(ErrorCode::kDataLoss,
                   fmt::format("part {} differs between replicas: {:016x} on rank {}, {:016x} "
                               "elsewhere",
                               model_.parts[part].name, digest, rank, own[part]));
    }
  }
  return Checksum(std::as_bytes(std::span(own)));
}

}  // namespace forebay::train
