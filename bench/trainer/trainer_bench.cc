// forebay_trainer_bench: steps of a chain of equal blocks under one layout, alone or below mpirun.
// Rank 0 prints one line of JSON: step times, the weights' digest, where ranks spent their time,
// what the simulator predicted from a profile of the single parts, and the links it measured.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/comm/link_probe.h"
#include "trainer/comm/mpi_transport.h"
#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/numerics/random_key.h"
#include "trainer/schedule/plan_simulator.h"

namespace forebay::train {
namespace {

struct Settings {
  std::uint32_t replicas = 1;
  std::uint32_t stages = 1;
  std::string schedule = "1f1b";
  std::uint32_t micro_batches = 8;
  std::uint32_t samples = 32;  // of a micro-batch
  std::int64_t width = 512;
  std::uint32_t blocks = 8;
  std::uint32_t steps = 8;
  std::uint32_t warm = 2;  // further steps, before those that are timed
  bool fast = false;       // gradients are summed left to right
};

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// x + W2 gelu(W1 x): the feed-forward half of a transformer block.
class Block final : public Part {
 public:
  explicit Block(std::int64_t width) {
    in_ = register_module("in", torch::nn::Linear(width, 4 * width));
    out_ = register_module("out", torch::nn::Linear(4 * width, width));
  }
  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    return inputs[0] + out_->forward(torch::gelu(in_->forward(inputs[0])));
  }

 private:
  torch::nn::Linear in_{nullptr};
  torch::nn::Linear out_{nullptr};
};

class SquaredError final : public Loss {
 public:
  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    return (output - target).pow(2).sum();
  }
  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    return {.correct = (output - target).abs().sum().item<double>(),
            .samples = static_cast<std::uint64_t>(target.size(0))};
  }
};

Model MakeChain(const Settings& settings) {
  Model model;
  model.name = fmt::format("chain-{}x{}", settings.blocks, settings.width);
  for (std::uint32_t block = 0; block < settings.blocks; ++block) {
    model.parts.push_back({.name = fmt::format("block{}", block),
                           .make = [width = settings.width] {
                             return std::make_shared<Block>(width);
                           }});
  }
  model.loss = std::make_shared<SquaredError>();
  return model;
}

class NormalSource final : public MicroBatchSource {
 public:
  explicit NormalSource(const Settings& settings) : settings_(settings) {}
  Result<torch::Tensor> Input(std::uint32_t micro_batch) override {
    return Normal(LayerSeed(1, 0, micro_batch, "input"));
  }
  Result<torch::Tensor> Target(std::uint32_t micro_batch) override {
    return Normal(LayerSeed(1, 0, micro_batch, "target"));
  }

 private:
  torch::Tensor Normal(std::uint64_t seed) const {
    return torch::empty({settings_.samples, settings_.width})
        .normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
  }
  Settings settings_;
};

// Half of a round trip of `bytes` between ranks 0 and 1, the median of many; 0 for one rank.
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

HybridLayout LayoutOf(const Settings& settings, Schedule schedule) {
  HybridLayout layout;
  layout.layout = {.replicas = settings.replicas, .stages = settings.stages};
  layout.schedule = schedule;
  for (std::uint32_t stage = 0; stage < settings.stages; ++stage) {
    layout.split.begins.push_back(settings.blocks * stage / settings.stages);
  }
  return layout;
}

// From the profile of single parts and the links, none of which ran under this layout.
Result<Simulation> Predict(const ModelMeasure& measure, const Settings& settings,
                           const HybridLayout& layout, std::uint64_t small_ns,
                           std::uint64_t large_ns, std::size_t large_bytes) {
  PlanRequest request;
  FOREBAY_ASSIGN(request.stages, CutIntoStages(measure.graph, layout.split));
  request.layout = layout.layout;
  request.micro_batches = settings.micro_batches;
  request.schedule = layout.schedule;
  FOREBAY_ASSIGN(const StepPlan plan, BuildPlan(request));
  SimulationCosts costs;
  if (large_ns > small_ns) {
    costs.message.latency_ns = small_ns;
    costs.message.bytes_per_ns =
        static_cast<double>(large_bytes) / static_cast<double>(large_ns - small_ns);
    costs.collective = costs.message;
  }
  return SimulatePlan(plan, costs);
}

// As forebay-train does at its start.
Result<LinkProbe> ProbeReductions(const ModelMeasure& measure, const Settings& settings,
                                  Communicator& communicator) {
  ProbeRequest request{.stages = settings.stages, .now_ns = NowNs};
  for (const ModuleProfile& module : measure.graph.modules) {
    request.gradient_bytes += module.parameter_bytes / settings.stages;
  }
  return ProbeLinks(communicator, request);
}

Result<nlohmann::json> Run(const Settings& settings, Communicator& communicator) {
  const Model model = MakeChain(settings);
  NormalSource source(settings);
  constexpr std::size_t kLargeBytes = std::size_t{4} << 20;
  FOREBAY_ASSIGN(const torch::Tensor input, source.Input(0));
  FOREBAY_ASSIGN(const torch::Tensor target, source.Target(0));
  FOREBAY_ASSIGN(const ModelMeasure measure, MeasureModel(model, input, target, NowNs));
  FOREBAY_ASSIGN(const std::uint64_t small_ns, MessageNs(communicator, 64));
  FOREBAY_ASSIGN(const std::uint64_t medium_ns, MessageNs(communicator, std::size_t{256} << 10));
  FOREBAY_ASSIGN(const std::uint64_t large_ns, MessageNs(communicator, kLargeBytes));
  FOREBAY_ASSIGN(const Schedule schedule, ParseSchedule(settings.schedule));
  const HybridLayout layout = LayoutOf(settings, schedule);
  FOREBAY_ASSIGN(const Simulation predicted,
                 Predict(measure, settings, layout, small_ns, large_ns, kLargeBytes));
  HybridOptions options;
  options.micro_batches = settings.micro_batches;
  if (settings.fast) options.stage.sum_order = SumOrder::kLeftToRight;
  FOREBAY_ASSIGN(const LinkProbe probe, ProbeReductions(measure, settings, communicator));
  if (probe.bucket_bytes > 0) options.bucket_bytes = probe.bucket_bytes;
  FOREBAY_ASSIGN(const auto trainer,
                 HybridTrainer::Make(model, measure, communicator, options, layout));
  const std::vector<std::uint32_t> samples(settings.micro_batches, settings.samples);
  nlohmann::json steps = nlohmann::json::array();
  RankTimes spent;
  for (std::uint32_t step = 0; step < settings.warm + settings.steps; ++step) {
    FOREBAY_TRY(communicator.Barrier());
    const std::uint64_t began_ns = NowNs();
    FOREBAY_ASSIGN(const StageOutcome outcome, trainer->TrainStep(1e-3, samples, source));
    if (!(outcome.loss_sum > 0)) return Error(ErrorCode::kInternal, "the loss is not positive");
    if (step < settings.warm) continue;
    steps.push_back(static_cast<double>(NowNs() - began_ns) * 1e-9);
    spent = trainer->last_report().times;
  }
  FOREBAY_ASSIGN(const std::uint64_t digest, trainer->Digest());
  return nlohmann::json{
      {"digest", fmt::format("{:016x}", digest)},
      {"bucket_bytes", options.bucket_bytes},
      {"step_s", steps},
      {"predicted_s", static_cast<double>(predicted.step_ns) * 1e-9},
      {"predicted_bubble", predicted.bubble},
      {"message_ns", {{"64", small_ns}, {"262144", medium_ns}, {"4194304", large_ns}}},
      {"rank0_last_step_ns",
       {{"compute", spent.compute_ns},
        {"wait_message", spent.wait_message_ns},
        {"wait_collective", spent.wait_collective_ns},
        {"other", spent.other_ns}}}};
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times training steps of a chain of equal blocks under one layout.");
  app.add_option("--replicas", settings.replicas);
  app.add_option("--stages", settings.stages);
  app.add_option("--schedule", settings.schedule, "gpipe or 1f1b");
  app.add_option("--micro-batches", settings.micro_batches, "of a step, over all replicas");
  app.add_option("--samples", settings.samples, "of a micro-batch");
  app.add_option("--width", settings.width);
  app.add_option("--blocks", settings.blocks);
  app.add_option("--steps", settings.steps);
  app.add_option("--warm", settings.warm);
  app.add_flag("--fast", settings.fast, "sums gradients left to right");
  CLI11_PARSE(app, argc, argv);
  const auto failed = [](const Error& error) {
    std::fprintf(stderr, "forebay_trainer_bench: %s\n", error.ToString().c_str());
    return 1;
  };
  if (const Status threads = SetTorchThreads(1); !threads.has_value()) {
    return failed(threads.error());
  }
  std::unique_ptr<Communicator> communicator;
  if (LaunchedByMpi()) {
    Result<std::unique_ptr<Transport>> transport = MakeMpiTransport();
    if (!transport.has_value()) return failed(transport.error());
    communicator = std::make_unique<Communicator>(*std::move(transport));
  } else {
    communicator = std::make_unique<Communicator>(Communicator::Alone());
  }
  const Result<nlohmann::json> report = Run(settings, *communicator);
  if (!report.has_value()) {
    const int code = failed(report.error());
    communicator->Abort(code);
    return code;
  }
  if (communicator->rank() == 0) std::printf("%s\n", report->dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) { return forebay::train::Main(argc, argv); }
