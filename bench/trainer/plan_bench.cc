// forebay_plan_bench: holds the plan checker against plans that are spoilt, and the plan runner
// against plans that are not, without LibTorch. Prints one line of JSON: how many of each kind of
// damage were refused, and how many random plans ended, with the sums that one process would have.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/trainer/plan_damage.h"
#include "trainer/comm/transport/local_transport.h"
#include "trainer/schedule/run/plan_runner.h"
#include "trainer/schedule/testing/graph_fixture.h"
#include "trainer/schedule/testing/integer_worker.h"

namespace forebay::train {
namespace {

constexpr std::uint64_t kPatienceNs = 20'000'000'000;  // a wait of this length is a hang
// A kind of damage that fits few plans must not draw for ever.
constexpr int kDrawsMax = 100'000;

struct Settings {
  std::uint64_t seed = 1;
  int bad = 100;      // of each kind
  int valid = 1000;
};

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Any layout, schedule and cut; half of those that train also move what they save.
RandomCase Draw(std::mt19937_64& random) {
  RandomCase made = MakeRandomCase(random);
  if (made.plan.trains && random() % 2 == 0) made.plan = MoveAtRandom(random, made.plan);
  return made;
}

struct Refusals {
  int tried = 0;
  int refused = 0;
  std::string passed = {};  // a plan that should not have
};

Refusals Spoil(const DamageKind& kind, int count, std::mt19937_64& random) {
  Refusals refusals;
  for (int draw = 0; draw < kDrawsMax && refusals.tried < count; ++draw) {
    RandomCase made = Draw(random);
    const std::optional<CheckOptions> options = kind.spoil(made.plan, random);
    // The plan may have been changed half-way, so it is thrown away and a new one is drawn.
    if (!options) continue;
    ++refusals.tried;
    if (!CheckPlan(made.plan, *options).has_value()) {
      ++refusals.refused;
    } else {
      // The last one is enough to look into: with the seed, all of them can be drawn again.
      refusals.passed = ToText(made.plan);
    }
  }
  return refusals;
}

// One step on a thread per rank. True where all end with the sums of one process.
bool Runs(const RandomCase& made) {
  const std::uint32_t ranks = made.plan.layout.ranks();
  auto ends = MakeLocalTransports(ranks);
  // All ranks get the same identity: the runner compares the hashes between ranks, as it does with
  // the samples of a real step.
  const StepIdentity identity{
      .step = 1, .samples_hashes = std::vector<std::uint64_t>(made.plan.micro_batches, 7)};
  std::vector<std::unique_ptr<IntegerWorker>> workers;
  std::vector<char> ended(ranks, 0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    workers.push_back(std::make_unique<IntegerWorker>(made.graph, made.split, made.plan, rank));
  }
  {
    // The end of this scope joins all threads; the results are read only after it.
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        PlanRunner runner(made.plan, *workers[rank], *ends[rank],
                          {.timeout_ns = kPatienceNs, .now_ns = NowNs});
        ended[rank] = runner.RunStep(identity).has_value() ? 1 : 0;
        // The other ranks may wait for this one, and would do so until the timeout.
        if (ended[rank] == 0) ends[rank]->Abort(1);
      });
    }
  }
  const std::vector<double> sums =
      IntegerModel(made.graph).Gradients(made.plan.trains ? made.plan.micro_batches : 0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const StageCost& stage = made.plan.stages.stages[made.plan.layout.StageOf(rank)];
    // A stage without parameters has no reduction, so its replicas keep sums of their own part.
    const bool summed = made.plan.layout.replicas == 1 || stage.parameter_bytes > 0;
    for (std::uint32_t module = stage.first_module; module < stage.EndModule(); ++module) {
      // Exactly equal, because the model's numbers are integers.
      if (summed && workers[rank]->sums()[module] != sums[module]) return false;
    }
    if (ended[rank] == 0) return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Counts bad plans that the checker refuses and random plans that run.");
  app.add_option("--seed", settings.seed);
  app.add_option("--bad", settings.bad, "plans of each kind of damage");
  app.add_option("--valid", settings.valid, "plans that are run");
  CLI11_PARSE(app, argc, argv);
  // All random numbers come from one generator, so a seed repeats the whole run.
  std::mt19937_64 random(settings.seed);
  nlohmann::json kinds = nlohmann::json::object();
  int tried = 0;
  int refused = 0;
  for (const DamageKind& kind : DamageKinds()) {
    const Refusals refusals = Spoil(kind, settings.bad, random);
    kinds[std::string(kind.name)] = {refusals.tried, refusals.refused};
    tried += refusals.tried;
    refused += refusals.refused;
    if (refusals.passed.empty()) continue;
    std::fprintf(stderr, "not refused, though %s:\n%s", std::string(kind.name).c_str(),
                 refusals.passed.c_str());
  }
  int ran = 0;
  for (int round = 0; round < settings.valid; ++round) ran += Runs(Draw(random)) ? 1 : 0;
  const nlohmann::json report = {{"bad", tried},           {"refused", refused},
                                 {"kinds", kinds},         {"valid", settings.valid},
                                 {"ran", ran}};
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) { return forebay::train::Main(argc, argv); }
