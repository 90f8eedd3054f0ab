// forebay_gpu_bench: trains a model of the registry on one device, in one process, with samples
// that lie on the device already, so that no feed takes part. It prints one line of JSON: the time
// of each step and, for a GPU, the peak bytes, both beside what the simulator predicted before the
// first step; the bytes swapped in a step; with --gap also how long the device is busy in a step.
// With --swap-mib it makes no steps, and measures how fast memory goes to the host and back.
// bench/harness/gpu.py runs it beside the same steps with PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/gpu/gpu_busy.h"
#include "bench/gpu/gpu_memory.h"
#include "trainer/core/config/memory_choice.h"
#include "trainer/exec/device/device.h"
#include "trainer/exec/hybrid_trainer.h"
#include "trainer/exec/measure/measure_costs.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/models/model_request.h"
#include "trainer/numerics/precision.h"

namespace forebay::train {
namespace {

struct Settings {
  ModelRequest model{.name = "resnet50"};
  std::string device = "cuda";
  std::string precision = "fp32";
  MemoryConfig memory{.policy = "keep", .host_bytes = "64GiB"};
  std::uint64_t cap_mib = 0;   // of the GPU's memory; 0: none
  std::uint32_t samples = 32;  // of a step, which is one micro-batch
  std::uint32_t steps = 20;
  std::uint32_t warm = 5;
  bool gap = false;
  std::uint64_t swap_mib = 0;
};

// Made after the timed steps, because the profiler slows the host down.
constexpr int kProfiledSteps = 3;

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

double SecondsSince(std::uint64_t began_ns) {
  return static_cast<double>(NowNs() - began_ns) * 1e-9;
}

// Returns the same micro-batch for each step. It is on the device, so a step copies no samples.
class ResidentSource final : public MicroBatchSource {
 public:
  ResidentSource(torch::Tensor input, torch::Tensor target)
      : input_(std::move(input)), target_(std::move(target)) {}
  Result<torch::Tensor> Input(std::uint32_t) override { return input_; }
  Result<torch::Tensor> Target(std::uint32_t) override { return target_; }
  const torch::Tensor& input() const { return input_; }
  const torch::Tensor& target() const { return target_; }

 private:
  torch::Tensor input_;
  torch::Tensor target_;
};

// Draws a micro-batch, with targets of the kind that the model's loss needs: a class for each
// sample or for each voxel, or numbers.
ResidentSource MakeSamples(const ModelSizes& sizes, std::uint32_t samples,
                           const torch::Device& device) {
  std::vector<std::int64_t> shape = sizes.shape;
  shape.insert(shape.begin(), samples);
  // With a fixed seed, runs of the same kind end in the same digest. The numbers are drawn on the
  // host, so that they are the same for every device.
  torch::manual_seed(1);
  const torch::Tensor input = torch::randn(shape);
  torch::Tensor target = torch::randint(sizes.outputs, {samples}, torch::kLong);
  if (sizes.loss == "dice-cross-entropy") {
    target = input.select(1, 0).gt(0).to(torch::kLong);
  } else if (sizes.loss != "cross-entropy") {
    target = torch::tanh(input.flatten(1).narrow(1, 0, sizes.outputs));
  }
  return {input.to(device), target.to(device)};
}

// Builds the trainer for a job of one rank, then times its steps.
Result<nlohmann::json> Steps(const Settings& settings, const torch::Device& device) {
  FOREBAY_ASSIGN(const ModelSizes sizes, ResolveModel(settings.model));
  FOREBAY_ASSIGN(const Model model, MakeModel(settings.model));
  ResidentSource source = MakeSamples(sizes, settings.samples, device);
  Communicator alone = Communicator::Alone();
  HybridOptions options;
  options.stage.device = device;
  FOREBAY_ASSIGN(options.stage.precision, ParsePrecision(settings.precision));
  FOREBAY_ASSIGN(const MemorySettings memory, ParseMemory(settings.memory));
  options.stage.swap.pool_bytes = memory.host_bytes;
  options.micro_batches = 1;
  // Parts, updates and swaps are measured before the first step: the prediction must not know the
  // times that it is compared with.
  FOREBAY_ASSIGN(const ModelMeasure measure,
                 MeasureModel(model, source.input(), source.target(), NowNs,
                              options.stage.precision));
  FOREBAY_ASSIGN(options.costs, MeasureCosts({.device = device, .now_ns = NowNs}, alone));
  MemoryChoices choices(memory, options.costs, measure.saved_exactly);
  // Without a budget or a policy that moves saved values, the plan stays as it was built.
  if (memory.active()) {
    options.keeping = [&](const StepPlan& plan) { return choices.Choose(plan); };
  }
  const HybridLayout layout{.layout = {.replicas = 1, .stages = 1}, .split = {.begins = {0}}};
  FOREBAY_ASSIGN(const std::unique_ptr<HybridTrainer> trainer,
                 HybridTrainer::Make(model, measure, alone, options, layout));
  // TrainStep may return while the GPU still works on what it was asked to do. The time of a step
  // includes that work, so the step ends when the device has finished.
  const auto train_step = [&]() -> Status {
    FOREBAY_TRY(trainer->TrainStep(1e-3, {settings.samples}, source));
    Synchronise(device);
    return {};
  };
  std::vector<double> step_s;
  for (std::uint32_t step = 0; step < settings.warm + settings.steps; ++step) {
    Synchronise(device);
    // The peak leaves out the measurements above and the warm-up steps. It includes what lives now,
    // such as weights and the optimiser's state.
    if (step == settings.warm) BeginDevicePeak(device);
    const std::uint64_t began_ns = NowNs();
    FOREBAY_TRY(train_step());
    if (step >= settings.warm) step_s.push_back(SecondsSince(began_ns));
  }
  FOREBAY_ASSIGN(const std::uint64_t digest, trainer->Digest());
  const SwapFigures swapped = trainer->swap_figures();
  // The report is made before the profiled steps, which would add to the swapped bytes and the
  // peak.
  nlohmann::json report{
      {"model", sizes.Title()},
      {"step_s", step_s},
      {"step_samples", settings.samples},
      {"predicted_s", static_cast<double>(trainer->predicted().step_ns) * 1e-9},
      {"peak_bytes", DeviceMemoryOf(device).peak_bytes},
      {"predicted_peak_bytes", trainer->predicted().PeakBytes()},
      {"memory", choices.TakeReasons()},
      {"digest", fmt::format("{:016x}", digest)},
      {"swapped_bytes", swapped.out_bytes / (settings.warm + settings.steps)}};
  if (settings.gap) {
    FOREBAY_ASSIGN(const std::uint64_t busy_ns, BusyNs(device, [&]() -> Status {
                     for (int step = 0; step < kProfiledSteps; ++step) FOREBAY_TRY(train_step());
                     return {};
                   }));
    report["busy_s"] = static_cast<double>(busy_ns) * 1e-9 / kProfiledSteps;
  }
  return report;
}

// Moves blocks to the host and back, through the engine's swap and as plain copies from and to
// pinned memory, which show what the link can do. Both take turns in each round, so that a link
// whose speed drifts does so under both.
Result<nlohmann::json> Swaps(const Settings& settings, const torch::Device& device) {
  constexpr std::int64_t kBlock = std::int64_t{64} << 20;
  constexpr int kRounds = 7;
  const std::uint64_t blocks = std::max<std::uint64_t>(1, settings.swap_mib >> 6U);
  const auto bytes = static_cast<double>(blocks) * static_cast<double>(kBlock);
  // Each block holds a number of its own, so that a block in the place of another shows.
  const auto number_of = [](std::uint64_t at) { return static_cast<std::int64_t>(at % 251); };
  const torch::TensorOptions on_device = torch::TensorOptions(torch::kUInt8).device(device);
  std::vector<torch::Tensor> tensors;
  for (std::uint64_t at = 0; at < blocks; ++at) {
    tensors.push_back(torch::full({kBlock}, number_of(at), on_device));
  }
  // The plain copies share one pinned block and one to come back to: only their speed counts, and
  // they must not repair what the swap has damaged.
  torch::Tensor host = HostRoom({kBlock}, torch::kUInt8, device);
  torch::Tensor back = torch::empty({kBlock}, on_device);
  StorageSwap swap({.pool_bytes = 64ULL << 30}, device);
  std::vector<double> plain_gb_s;
  std::vector<double> swap_gb_s;
  const auto key = [](std::uint64_t at) {
    return SwapKey{BufferKind::kSaved, static_cast<std::uint32_t>(at), 0};
  };
  for (int round = 0; round < kRounds; ++round) {
    Synchronise(device);
    std::uint64_t began_ns = NowNs();
    for (torch::Tensor& tensor : tensors) host.copy_(tensor, /*non_blocking=*/true);
    for (std::uint64_t at = 0; at < blocks; ++at) back.copy_(host, /*non_blocking=*/true);
    Synchronise(device);
    // Twice, because every byte goes out and comes back.
    plain_gb_s.push_back(2e-9 * bytes / SecondsSince(began_ns));
    began_ns = NowNs();
    // All blocks begin to leave before the first is waited for, so that their copies follow
    // each other without a pause.
    for (std::uint64_t at = 0; at < blocks; ++at) FOREBAY_TRY(swap.Out(key(at), {&tensors[at]}));
    for (std::uint64_t at = 0; at < blocks; ++at) swap.EndOut(key(at));
    for (std::uint64_t at = 0; at < blocks; ++at) swap.In(key(at));
    for (std::uint64_t at = 0; at < blocks; ++at) swap.AwaitBack(key(at));
    Synchronise(device);
    swap_gb_s.push_back(2e-9 * bytes / SecondsSince(began_ns));
    for (std::uint64_t at = 0; at < blocks; ++at) {
      if (tensors[at].eq(number_of(at)).all().item<bool>()) continue;
      return Error(ErrorCode::kDataLoss,
                   fmt::format("block {} of {} came back with other bytes in round {}", at, blocks,
                               round));
    }
  }
  // StorageSwap keeps storages that another tensor holds. If it kept one here, the figures above
  // would be those of no copy.
  const SwapFigures moved = swap.figures();
  const std::uint64_t due = kRounds * blocks * static_cast<std::uint64_t>(kBlock);
  if (moved.out_bytes != due || moved.in_bytes != due) {
    return Error(ErrorCode::kInternal, fmt::format("{} bytes went out and {} came back of {}",
                                                   moved.out_bytes, moved.in_bytes, due));
  }
  // In the first round the swap allocates pinned memory, which later rounds use again.
  plain_gb_s.erase(plain_gb_s.begin());
  swap_gb_s.erase(swap_gb_s.begin());
  return nlohmann::json{{"plain_gb_s", plain_gb_s}, {"swap_gb_s", swap_gb_s}};
}

// Turns LibTorch's exceptions into errors. It throws, for example, if the GPU has too little
// memory.
Result<nlohmann::json> Run(const Settings& settings) {
  try {
    FOREBAY_TRY(SetTorchThreads(1));
    FOREBAY_ASSIGN(const torch::Device device, ChooseDevice(settings.device, 0));
    // Set before LibTorch allocates anything on the device.
    if (settings.cap_mib > 0) FOREBAY_TRY(CapDeviceMemory(device, settings.cap_mib << 20U));
    FOREBAY_ASSIGN(nlohmann::json report, settings.swap_mib > 0 ? Swaps(settings, device)
                                                                : Steps(settings, device));
    report["device"] = device.is_cpu() ? "cpu" : DescribeDevice(device);
    return report;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times training steps of one model on one device, or its swap.");
  app.add_option("--model", settings.model.name, "of the registry");
  app.add_option("--shape", settings.model.shape, "of a sample")->delimiter(',');
  app.add_option("--samples", settings.samples, "of a step");
  app.add_option("--device", settings.device, "cpu, cuda or auto");
  app.add_option("--precision", settings.precision, "fp32 or bf16");
  app.add_option("--policy", settings.memory.policy, "memory.policy of forebay-train")
      ->check(CLI::IsMember({"auto", "keep", "swap", "recompute"}));
  app.add_option("--budget", settings.memory.budget, "memory.budget");
  app.add_option("--cap-mib", settings.cap_mib, "of the GPU's memory that may be taken");
  app.add_option("--steps", settings.steps)->check(CLI::PositiveNumber);
  app.add_option("--warm", settings.warm, "steps before those that are timed");
  app.add_flag("--gap", settings.gap, "also how long the device is busy in a step: \"busy_s\"");
  app.add_option("--swap-mib", settings.swap_mib, "no steps: MiB that go out and come back");
  CLI11_PARSE(app, argc, argv);
  const Result<nlohmann::json> report = Run(settings);
  if (!report.has_value()) {
    // LibTorch's messages end with a stack trace, and those about missing memory are long without
    // it. The beginning says what happened.
    constexpr std::size_t kTextMax = 300;
    const std::string text = report.error().ToString();
    std::fprintf(stderr, "forebay_gpu_bench: %s\n",
                 text.substr(0, std::min(kTextMax, text.find("\nException raised from"))).c_str());
    return 1;
  }
  std::printf("%s\n", report->dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) { return forebay::train::Main(argc, argv); }
