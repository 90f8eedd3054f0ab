// forebay_memory_bench: one process trains one model several times over, with what is saved for
// backward kept, swapped to the host, computed again, or a mixture that the planner chooses, and a
// byte budget for all but the first. Steps are interleaved. Prints one line of JSON: by way, step
// times and peak bytes as predicted and as measured, and digests of gradients and weights; and the
// ways that no plan fits the budget.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/trainer/bench_task.h"
#include "proto/contract/checksum.h"
#include "trainer/exec/measure/measure_costs.h"
#include "trainer/exec/measure/tensor_bytes.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/schedule/memory/memory_planner.h"

namespace forebay::train {
namespace {

struct Settings {
  std::string task = "vit";
  std::uint32_t samples = 0;
  std::uint32_t micro_batches = 4;  // all in flight at once, as on a pipeline's first stage
  double dropout = 0;
  double budget = 0.5;     // of what is kept in a step, beside what is resident
  double link_gb_s = 0;    // of an emulated link; 0: as fast as memory
  int steps = 7;
  std::uint64_t work = 2'000'000;
  std::vector<std::string> ways = {"keep", "swap", "recompute", "mixed"};
};

constexpr int kCountedSteps = 2;  // before those that are timed

// One way to treat what is saved, and what came of it.
struct Way {
  std::string name;
  std::unique_ptr<HybridTrainer> trainer = {};
  std::string reason = {};
  std::uint64_t peak_bytes = 0;
  std::uint64_t gradients = 0;
  std::vector<double> step_s = {};
  RankTimes spent = {};
};

// Saved values, what is on the way, and scratch of operators, at the step's fullest moment.
std::uint64_t ActivationBytes(const StepPlan& plan, const Simulation& simulation) {
  // Weights and optimiser state are the same in every way, and would hide the differences.
  return simulation.PeakBytes() - plan.programs[0].resident_bytes;
}

class MemoryBench {
 public:
  explicit MemoryBench(const Settings& settings)
      : settings_(settings), communicator_(Communicator::Alone()) {}

  Result<nlohmann::json> Run() {
    FOREBAY_ASSIGN(task_, MakeBenchTask(settings_.task, settings_.samples, {}, settings_.dropout));
    source_ = std::make_unique<BenchSource>(task_, settings_.micro_batches);
    FOREBAY_ASSIGN(measure_, MeasureModel(task_.model, task_.input(0, task_.samples),
                                          task_.target(0, task_.samples), NowNs));
    // 1 GB/s is one byte in a nanosecond.
    swap_.link_bytes_per_ns = settings_.link_gb_s;
    // Measured once and used for all ways, so that their plans differ in the way only.
    FOREBAY_ASSIGN(costs_, MeasureCosts({.swap = swap_, .now_ns = NowNs}, communicator_));
    for (const std::string& name : settings_.ways) {
      const Status added = AddWay(name);
      if (added.has_value()) continue;
      // A way that cannot meet the budget is a result, and the others are still measured.
      if (added.error().code() != ErrorCode::kResourceExhausted) return added.error();
      unfit_[name] = added.error().ToString();
    }
    FOREBAY_TRY(CountSteps());
    FOREBAY_TRY(TimeSteps());
    return Report();
  }

 private:
  Result<StepKeeping> Choose(const std::string& name, const StepPlan& plan, Way& way) {
    FOREBAY_ASSIGN(const Simulation kept, SimulatePlan(plan, costs_));
    // The budget is a part of what keeping all would take, so one number suits models of all sizes.
    const auto allowed = static_cast<double>(ActivationBytes(plan, kept)) * settings_.budget;
    budget_bytes_ = static_cast<std::uint64_t>(allowed);
    // The other ways are compared with this one. It does not meet the budget and is not meant to.
    if (name == "keep") return KeepAll(plan, {});
    const MemoryRequest request{.plan = plan,
                                .costs = costs_,
                                .budget_bytes = plan.programs[0].resident_bytes + budget_bytes_,
                                .may_swap = name != "recompute",
                                .may_recompute = name != "swap",
                                .least_swap_bytes = swap_.least_bytes,
                                .most_instructions = settings_.work};
    FOREBAY_ASSIGN(MemoryChoice choice, PlanMemory(request));
    way.reason = std::move(choice.reason);
    return std::move(choice.keeping);
  }

  Status AddWay(const std::string& name) {
    auto way = std::make_unique<Way>();
    way->name = name;
    HybridOptions options;
    options.micro_batches = settings_.micro_batches;
    options.stage.swap = swap_;
    options.costs = costs_;
    // The pointer stays good: `way` moves into the list below, and the object behind it does not.
    options.keeping = [this, name, into = way.get()](const StepPlan& plan) {
      return Choose(name, plan, *into);
    };
    HybridLayout layout;
    layout.split = {{0}};
    // All forward passes come first here, so all micro-batches' values are saved at once.
    FOREBAY_ASSIGN(layout.schedule, FindPipelineSchedule("gpipe"));
    FOREBAY_ASSIGN(way->trainer, HybridTrainer::Make(task_.model, measure_, communicator_, options,
                                                     layout));
    ways_.push_back(std::move(way));
    return {};
  }

  Status Step(Way& way) {
    const std::vector<std::uint32_t> samples(settings_.micro_batches, task_.samples);
    const std::uint64_t began_ns = NowNs();
    FOREBAY_TRY(way.trainer->TrainStep(1e-3, samples, *source_));
    way.step_s.push_back(static_cast<double>(NowNs() - began_ns) * 1e-9);
    way.spent = way.trainer->last_report().times;
    return {};
  }

  Status CountSteps() {
    // The counting allocator takes a lock for each tensor, so these steps are not timed.
    TensorBytes bytes;
    for (const std::unique_ptr<Way>& way : ways_) {
      for (int step = 0; step < kCountedSteps; ++step) {
        bytes.BeginPeak();
        const std::uint64_t before = bytes.Live();
        FOREBAY_TRY(Step(*way));
        // The peak of the second step replaces that of the first, because the first step also
        // allocates memory that stays, such as the optimiser's state.
        way->peak_bytes = bytes.Peak() - before;
        if (step > 0) continue;
        // After the first step only the momentum is the gradient (bench_task.h).
        FOREBAY_ASSIGN(way->gradients, GradientDigest(task_.model, *way->trainer, communicator_));
      }
      way->step_s.clear();
    }
    return {};
  }

  Status TimeSteps() {
    // The counting has ended, and LibTorch's own allocator is used again from here on.
    for (const std::unique_ptr<Way>& way : ways_) FOREBAY_TRY(Step(*way));  // warm
    for (const std::unique_ptr<Way>& way : ways_) way->step_s.clear();
    for (int step = 0; step < settings_.steps; ++step) {
      for (std::size_t turn = 0; turn < ways_.size(); ++turn) {
        // The order is reversed in odd rounds, so that no way always follows the same other way.
        FOREBAY_TRY(Step(*ways_[step % 2 == 0 ? turn : ways_.size() - 1 - turn]));
      }
    }
    return {};
  }

  Result<nlohmann::json> Report() {
    nlohmann::json ways = nlohmann::json::object();
    for (const std::unique_ptr<Way>& way : ways_) {
      FOREBAY_ASSIGN(const std::uint64_t digest, way->trainer->Digest());
      const StepPlan& plan = way->trainer->plan();
      const Simulation& predicted = way->trainer->predicted();
      // The report has a checksum of the plan, which tells a reader whether two runs had the same
      // plan.
      const std::string text = ToText(plan);
      ways[way->name] = {
          {"step_s", way->step_s},
          {"predicted_s", static_cast<double>(predicted.step_ns) * 1e-9},
          {"peak_bytes", way->peak_bytes},
          {"predicted_peak_bytes", ActivationBytes(plan, predicted)},
          {"gradients", fmt::format("{:016x}", way->gradients)},
          {"digest", fmt::format("{:016x}", digest)},
          {"plan", fmt::format("{:016x}", Checksum(std::as_bytes(std::span(text))))},
          {"reason", way->reason},
          {"swapped_bytes", way->trainer->swap_figures().out_bytes},
          {"kept_bytes", way->trainer->swap_figures().kept_bytes},
          {"compute_s", static_cast<double>(way->spent.compute_ns) * 1e-9},
          {"recompute_s", static_cast<double>(way->spent.recompute_ns) * 1e-9},
          {"wait_swap_s", static_cast<double>(way->spent.wait_swap_ns) * 1e-9}};
    }
    return nlohmann::json{{"model", task_.model.name},
                          {"samples", task_.samples},
                          {"micro_batches", settings_.micro_batches},
                          {"budget_bytes", budget_bytes_},
                          {"swap_gb_s", costs_.swap.bytes_per_ns},
                          {"unfit", unfit_},
                          {"ways", ways}};
  }

  Settings settings_;
  Communicator communicator_;
  BenchTask task_;
  std::unique_ptr<BenchSource> source_;
  ModelMeasure measure_;
  SwapOptions swap_;
  SimulationCosts costs_;
  std::uint64_t budget_bytes_ = 0;  // beside what is resident
  std::vector<std::unique_ptr<Way>> ways_;
  std::map<std::string, std::string> unfit_;  // ways that no plan fits the budget, and why
};

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains a model with activations kept, swapped, recomputed, or a mixture.");
  app.add_option("--task", settings.task, "vit, resnet, unet3d, cosmoflow or chain");
  app.add_option("--samples", settings.samples, "of a micro-batch; 0: the task's own");
  app.add_option("--micro-batches", settings.micro_batches, "of a step, all in flight at once");
  app.add_option("--dropout", settings.dropout, "0: the model's own");
  app.add_option("--budget", settings.budget, "part of the bytes that keeping all takes");
  app.add_option("--link", settings.link_gb_s, "GB/s of an emulated link; 0: memory's");
  app.add_option("--steps", settings.steps, "timed");
  app.add_option("--work", settings.work, "instructions of all plans that are tried");
  app.add_option("--ways", settings.ways, "keep, swap, recompute, mixed")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  // The computation gets one thread, so that the copies of a swap have a core of their own.
  const Status threads = SetTorchThreads(1);
  const Result<nlohmann::json> report =
      threads.has_value() ? MemoryBench(settings).Run() : Result<nlohmann::json>(threads.error());
  if (!report.has_value()) {
    std::fprintf(stderr, "forebay_memory_bench: %s\n", report.error().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", report->dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) { return forebay::train::Main(argc, argv); }
