// forebay_trainer_bench: trains one task (bench_task.h) under one layout, in one process or below
// mpirun. It measures single parts and the links first, makes the warm-up steps, in which bytes are
// counted, and then the steps that are timed. Rank 0 prints one line of JSON: step times, digests,
// the times of its last step, and peak bytes, with the times and bytes that the simulator predicted
// from the measurements. bench/harness/trainer.py runs it and judges the figures.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/trainer/bench_task.h"
#include "trainer/comm/launch.h"
#include "trainer/comm/link_probe.h"
#include "trainer/comm/transport/mpi_transport.h"
#include "trainer/exec/measure/measure_costs.h"
#include "trainer/exec/measure/measure_model.h"
#include "trainer/exec/measure/tensor_bytes.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/schedule/split_search.h"

namespace forebay::train {
namespace {

struct Settings {
  std::string task = "chain";
  std::uint32_t replicas = 1;
  std::uint32_t stages = 1;
  std::string schedule = "1f1b";
  std::vector<std::uint32_t> split;  // empty: equal times
  std::uint32_t micro_batches = 8;
  std::uint32_t samples = 0;  // of a micro-batch; 0: the task's own
  ChainShape chain;
  std::uint32_t steps = 8;
  std::uint32_t warm = 2;  // further steps, before those that are timed; bytes are counted in them
  std::uint32_t profiles = 1;  // before the steps; further ones between shares of them, and after
  bool fast = false;       // gradients are summed left to right
  std::string trace;       // file of the last step's trace; empty: none
};

// Half of a round trip of `bytes` between ranks 0 and 1, the median of many, because one delay of
// the machine would move a mean; 0 for one rank. Collective: the other ranks wait at the barrier,
// so that their traffic does not disturb the messages.
Result<std::uint64_t> MessageNs(Communicator& communicator, std::size_t bytes) {
  constexpr int kTrips = 60;
  constexpr std::uint64_t kPatienceNs = 60'000'000'000;
  std::vector<std::uint64_t> times;
  std::vector<std::byte> room(bytes);
  Transport& transport = communicator.transport();
  for (int trip = 0; trip < kTrips && communicator.rank() < 2 && communicator.size() > 1; ++trip) {
    const std::uint32_t peer = 1 - communicator.rank();
    const MessageTag tag{.step = static_cast<std::uint64_t>(trip)};
    const std::uint64_t began_ns = NowNs();
    // Rank 0 sends first and then receives the answer; rank 1 receives first and then sends it.
    for (const bool sends : {communicator.rank() == 0, communicator.rank() != 0}) {
      const Result<Ticket> ticket =
          sends ? transport.BeginSend(peer, Lane::kActivation, tag, room)
                : transport.BeginReceive(peer, Lane::kActivation, tag, room);
      if (!ticket.has_value()) return ticket.error();
      FOREBAY_TRY(transport.Wait(*ticket, kPatienceNs));
    }
    times.push_back((NowNs() - began_ns) / 2);
  }
  FOREBAY_TRY(communicator.Barrier());
  std::ranges::sort(times);
  return times.empty() ? 0 : times[times.size() / 2];
}

// One run of the benchmark on this rank. All ranks call Run with the same settings, and its steps
// are collective in the same order.
class LayoutBench {
 public:
  LayoutBench(const Settings& settings, Communicator& communicator)
      : settings_(settings), communicator_(communicator) {}

  Result<nlohmann::json> Run() {
    FOREBAY_ASSIGN(task_, MakeBenchTask(settings_.task, settings_.samples, settings_.chain, 0));
    source_ = std::make_unique<BenchSource>(task_, settings_.micro_batches);
    FOREBAY_ASSIGN(measure_, Measure());
    FOREBAY_ASSIGN(links_, ProbeBuckets());
    FOREBAY_ASSIGN(const HybridOptions options, MakeOptions());
    HybridLayout layout;
    layout.layout = {.replicas = settings_.replicas, .stages = settings_.stages};
    FOREBAY_ASSIGN(layout.schedule, FindPipelineSchedule(settings_.schedule));
    FOREBAY_ASSIGN(layout.split, Split());
    FOREBAY_ASSIGN(trainer_, HybridTrainer::Make(task_.model, measure_, communicator_, options,
                                                 layout));
    Foresee(trainer_->predicted());
    FOREBAY_TRY(CountSteps());
    // The first profile was taken above. Further ones divide the timed steps into equal shares, and
    // the last one follows the last step: with three, one lies in the middle.
    const std::uint32_t shares = std::max(settings_.profiles, 2U) - 1;
    std::uint32_t step = 0;
    for (std::uint32_t share = 1; share <= shares; ++share) {
      for (; step < settings_.steps * share / shares; ++step) FOREBAY_TRY(TimeStep());
      if (share < settings_.profiles) FOREBAY_TRY(ForeseeAgain());
    }
    return Report();
  }

 private:
  // The barrier lets ranks of one machine measure at the same time, as they also compute at the
  // same time. All ranks take rank 0's figures, because they must plan alike.
  Result<ModelMeasure> Measure() {
    FOREBAY_TRY(communicator_.Barrier());
    FOREBAY_ASSIGN(ModelMeasure measure,
                   MeasureModel(task_.model, task_.input(0, task_.samples),
                                task_.target(0, task_.samples), NowNs));
    FOREBAY_TRY(ShareMeasure(measure, task_.model.parts.size(), communicator_));
    return measure;
  }

  Result<SimulationCosts> Costs() {
    return MeasureCosts({.links = links_, .bucket_bytes = bucket_bytes_, .now_ns = NowNs},
                        communicator_);
  }

  // Notes the step time that a simulation predicts.
  void Foresee(const Simulation& simulation) {
    predicted_s_.push_back(static_cast<double>(simulation.step_ns) * 1e-9);
  }

  // Simulates the same plan with times that are measured now. If the speed of the machine drifts,
  // the median of these predictions has drifted like the median of the steps.
  Status ForeseeAgain() {
    FOREBAY_ASSIGN(const ModelMeasure measure, Measure());
    FOREBAY_ASSIGN(const SimulationCosts costs, Costs());
    // The instructions stay; the new measure replaces the times of the stages.
    StepPlan plan = trainer_->plan();
    FOREBAY_ASSIGN(plan.stages, CutIntoStages(measure.graph, trainer_->layout().split));
    FOREBAY_ASSIGN(const Simulation simulation, SimulatePlan(plan, costs));
    Foresee(simulation);
    return {};
  }

  Result<HybridOptions> MakeOptions() {
    HybridOptions options;
    options.micro_batches = settings_.micro_batches;
    if (settings_.fast) options.stage.sum_order = SumOrder::kLeftToRight;
    const std::uint64_t last = std::uint64_t{settings_.warm} + settings_.steps - 1;
    options.trace = {.path = settings_.trace, .steps = {.first = last, .last = last}};
    // 0: the probe tried no sizes, because nothing is reduced. Then the default stays.
    if (links_.bucket_bytes > 0) options.bucket_bytes = links_.bucket_bytes;
    // Costs() measures reductions with this size.
    bucket_bytes_ = options.bucket_bytes;
    FOREBAY_ASSIGN(costs_, Costs());
    options.costs = costs_;
    return options;
  }

  // Probes the links and sizes of buckets, as forebay-train does at its start. A rank reduces the
  // gradients of its stage, which are taken as an equal share; one replica reduces nothing.
  Result<LinkProbe> ProbeBuckets() {
    ProbeRequest request{.stages = settings_.stages, .now_ns = NowNs};
    for (const ModuleProfile& module : measure_.graph.modules) {
      if (settings_.replicas > 1) {
        request.gradient_bytes += module.parameter_bytes / settings_.stages;
      }
    }
    return ProbeLinks(communicator_, request);
  }

  // The first part of each stage: the given one, or else a split into stages of equal times. Blocks
  // of the chain are equal, so they are counted: noise in their times cannot move the cut.
  Result<StageSplit> Split() const {
    StageSplit split{.begins = settings_.split};
    if (!split.begins.empty()) return split;
    split.begins.resize(settings_.stages);
    const auto parts = static_cast<std::uint32_t>(task_.model.parts.size());
    if (settings_.task == "chain") {
      for (std::uint32_t stage = 0; stage < settings_.stages; ++stage) {
        split.begins[stage] = parts * stage / settings_.stages;
      }
      return split;
    }
    FOREBAY_ASSIGN(const SplitChoice choice, FindSplit(measure_.graph, settings_.stages, {}));
    return choice.split;
  }

  Status Step() {
    const std::vector<std::uint32_t> samples(settings_.micro_batches, task_.samples);
    FOREBAY_ASSIGN(const StageOutcome outcome, trainer_->TrainStep(1e-3, samples, *source_));
    // Every loss here is positive. Also fails for a loss that is not a number.
    if (outcome.loss_sum > 0) return {};
    return Error(ErrorCode::kInternal, "the loss is not positive");
  }

  // Makes the warm-up steps with counted bytes. The last one's peak is kept, less what was resident
  // before the step: the first step also allocates gradients and the optimiser's state. Counting
  // takes a lock for each tensor, so it ends with this call, before steps are timed.
  Status CountSteps() {
    peaks_.assign(communicator_.size(), 0);
    TensorBytes bytes;
    for (std::uint32_t step = 0; step < settings_.warm; ++step) {
      FOREBAY_TRY(communicator_.Barrier());
      bytes.BeginPeak();
      const std::uint64_t before = bytes.Live();
      FOREBAY_TRY(Step());
      peaks_[communicator_.rank()] = static_cast<double>(bytes.Peak() - before);
      // Only after the first step is the optimiser's momentum the gradient (GradientDigest).
      if (step > 0) continue;
      FOREBAY_ASSIGN(gradients_, GradientDigest(task_.model, *trainer_, communicator_));
    }
    // Every rank has set its own number and left the others 0, so the sum gathers them.
    return communicator_.AllReduceSum(std::span<double>(peaks_));
  }

  // The barrier keeps a rank's delay after the last step out of this one's time.
  Status TimeStep() {
    FOREBAY_TRY(communicator_.Barrier());
    const std::uint64_t began_ns = NowNs();
    FOREBAY_TRY(Step());
    step_s_.push_back(static_cast<double>(NowNs() - began_ns) * 1e-9);
    return {};
  }

  // Without resident bytes, as the measured peaks are.
  std::vector<double> PredictedPeaks() const {
    std::vector<double> peaks;
    const std::vector<RankTimes>& ranks = trainer_->predicted().ranks;
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
      peaks.push_back(static_cast<double>(ranks[rank].peak_bytes -
                                          trainer_->plan().programs[rank].resident_bytes));
    }
    return peaks;
  }

  // Collective, because of the digest and the messages; only rank 0's report is printed.
  Result<nlohmann::json> Report() {
    FOREBAY_ASSIGN(const std::uint64_t digest, trainer_->Digest());
    FOREBAY_ASSIGN(const std::uint64_t small_ns, MessageNs(communicator_, 64));
    FOREBAY_ASSIGN(const std::uint64_t medium_ns,
                   MessageNs(communicator_, std::size_t{256} << 10));
    const RankTimes& spent = trainer_->last_report().times;
    return nlohmann::json{
        {"model", task_.model.name},
        {"digest", fmt::format("{:016x}", digest)},
        {"gradients", fmt::format("{:016x}", gradients_)},
        {"bucket_bytes", bucket_bytes_},
        {"split", trainer_->layout().split.begins},
        {"step_s", step_s_},
        {"predicted_s", predicted_s_},
        {"predicted_bubble", trainer_->predicted().bubble},
        {"peak_bytes", peaks_},
        {"predicted_peak_bytes", PredictedPeaks()},
        {"message_ns", {{"64", small_ns}, {"262144", medium_ns}}},
        {"costs",
         {{"update_ns_per_byte", costs_.update_ns_per_byte},
          {"message_gb_s", costs_.message.bytes_per_ns},
          {"collective_gb_s", costs_.collective.bytes_per_ns},
          {"swap_gb_s", costs_.swap.bytes_per_ns}}},
        {"rank0_last_step_ns",
         {{"compute", spent.compute_ns},
          {"wait_message", spent.wait_message_ns},
          {"wait_collective", spent.wait_collective_ns},
          {"other", spent.other_ns}}}};
  }

  Settings settings_;
  Communicator& communicator_;
  BenchTask task_;
  std::unique_ptr<BenchSource> source_;
  ModelMeasure measure_;
  LinkProbe links_;
  SimulationCosts costs_;
  std::uint64_t bucket_bytes_ = 0;
  std::unique_ptr<HybridTrainer> trainer_;
  std::vector<double> peaks_;
  std::vector<double> step_s_;
  std::vector<double> predicted_s_;  // by profile
  std::uint64_t gradients_ = 0;
};

// MPI is started only if a launcher started this process, so that a run in one process needs none.
Result<std::unique_ptr<Communicator>> Connect() {
  const Launch launch = FindLaunch([](const char* name) { return std::getenv(name); });
  if (!launch.through_mpi) return std::make_unique<Communicator>(Communicator::Alone());
  FOREBAY_ASSIGN(std::unique_ptr<Transport> transport, MakeMpiTransport());
  return std::make_unique<Communicator>(std::move(transport));
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times training steps of a model under one layout.");
  app.add_option("--task", settings.task, "chain, vit, resnet, unet3d or cosmoflow");
  app.add_option("--replicas", settings.replicas);
  app.add_option("--stages", settings.stages);
  app.add_option("--schedule", settings.schedule, "a name that layout.pipeline_schedule takes");
  app.add_option("--split", settings.split, "first parts of stages; else equal times")
      ->delimiter(',');
  app.add_option("--micro-batches", settings.micro_batches, "of a step, over all replicas");
  app.add_option("--samples", settings.samples, "of a micro-batch; 0: the task's own");
  app.add_option("--width", settings.chain.width, "of the chain");
  app.add_option("--blocks", settings.chain.blocks, "of the chain");
  app.add_option("--steps", settings.steps);
  app.add_option("--warm", settings.warm)->check(CLI::PositiveNumber);
  app.add_option("--profiles", settings.profiles, "before, between and after the steps")
      ->check(CLI::PositiveNumber);
  app.add_flag("--fast", settings.fast, "gradients are summed left to right, not in a tree");
  app.add_option("--trace", settings.trace, "file: chrome trace of the last step");
  CLI11_PARSE(app, argc, argv);
  const auto failed = [](const Error& error) {
    std::fprintf(stderr, "forebay_trainer_bench: %s\n", error.ToString().c_str());
    return 1;
  };
  // Ranks share the cores of the machine, and the peers that they are compared with use one thread.
  if (const Status threads = SetTorchThreads(1); !threads.has_value()) {
    return failed(threads.error());
  }
  const Result<std::unique_ptr<Communicator>> communicator = Connect();
  if (!communicator.has_value()) return failed(communicator.error());
  const Result<nlohmann::json> report = LayoutBench(settings, **communicator).Run();
  if (!report.has_value()) {
    // Ends the other ranks as well, which would otherwise wait for this one.
    const int code = failed(report.error());
    (*communicator)->Abort(code);
    return code;
  }
  if ((*communicator)->rank() == 0) std::printf("%s\n", report->dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) { return forebay::train::Main(argc, argv); }
