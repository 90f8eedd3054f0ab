// Each kind of damage finds a random place of its kind in a sound plan and spoils it: an
// instruction is left out, moved or given another argument. The checker has to refuse every plan
// that comes out of this.
#include "bench/trainer/plan_damage.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace forebay::train {
namespace {

constexpr CheckOptions kAnyBudget = {};

struct Place {
  std::uint32_t rank = 0;
  std::size_t at = 0;
};

Instruction& At(StepPlan& plan, const Place& place) {
  return plan.programs[place.rank].instructions[place.at];
}

std::vector<Place> PlacesOf(const StepPlan& plan,
                            const std::function<bool(const Instruction&)>& wanted) {
  std::vector<Place> places;
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    const std::vector<Instruction>& list = plan.programs[rank].instructions;
    for (std::size_t at = 0; at < list.size(); ++at) {
      if (wanted(list[at])) places.push_back({rank, at});
    }
  }
  return places;
}

std::optional<Place> AnyOf(const std::vector<Place>& places, std::mt19937_64& random) {
  if (places.empty()) return std::nullopt;
  return places[random() % places.size()];
}

std::optional<Place> AnyOp(const StepPlan& plan, Op op, std::mt19937_64& random) {
  return AnyOf(PlacesOf(plan, [op](const Instruction& each) { return each.op == op; }), random);
}

void Erase(StepPlan& plan, const Place& place) {
  auto& list = plan.programs[place.rank].instructions;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(place.at));
}

Damage WithoutOne(Op op) {
  return [op](StepPlan& plan, std::mt19937_64& random) -> std::optional<CheckOptions> {
    const std::optional<Place> place = AnyOp(plan, op, random);
    if (!place) return std::nullopt;
    Erase(plan, *place);
    return kAnyBudget;
  };
}

std::optional<CheckOptions> WithoutAny(StepPlan& plan, std::mt19937_64& random) {
  // A swap that is not waited for ends as it comes back, or with the next one.
  const auto all =
      PlacesOf(plan, [](const Instruction& each) { return each.op != Op::kSwapEnd; });
  Erase(plan, *AnyOf(all, random));
  return kAnyBudget;
}

// Two messages of one channel and peer change places on one side.
std::optional<CheckOptions> SwappedMessages(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> one = AnyOp(plan, Op::kReceive, random);
  if (!one) return std::nullopt;
  const Instruction first = At(plan, *one);
  std::vector<Place> others = PlacesOf(plan, [&](const Instruction& other) {
    return other.op == Op::kReceive && other.channel == first.channel &&
           other.peer == first.peer &&
           (other.micro_batch != first.micro_batch || other.edge != first.edge);
  });
  std::erase_if(others, [&](const Place& place) { return place.rank != one->rank; });
  const std::optional<Place> other = AnyOf(others, random);
  if (!other) return std::nullopt;
  std::swap(At(plan, *one), At(plan, *other));
  return kAnyBudget;
}

// A stage waits for the gradient of an output before it sends that output.
std::optional<CheckOptions> CyclicWait(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> wait = AnyOf(
      PlacesOf(plan,
               [](const Instruction& each) {
                 return each.op == Op::kReceive && each.channel == Channel::kGradient;
               }),
      random);
  if (!wait) return std::nullopt;
  auto& list = plan.programs[wait->rank].instructions;
  const Instruction receive = At(plan, *wait);
  const auto send = std::ranges::find_if(list, [&](const Instruction& each) {
    return each.op == Op::kSend && each.channel == Channel::kActivation &&
           each.edge == receive.edge && each.micro_batch == receive.micro_batch;
  });
  const auto from = list.begin() + static_cast<std::ptrdiff_t>(wait->at);
  std::rotate(send, from, from + 1);
  return kAnyBudget;
}

std::optional<CheckOptions> WrongMicroBatch(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> place = AnyOp(plan, Op::kSend, random);
  if (!place || plan.micro_batches < 2) return std::nullopt;
  Instruction& send = At(plan, *place);
  send.micro_batch = (send.micro_batch + 1) % plan.micro_batches;
  return kAnyBudget;
}

// Two collectives of the same members begin in another order on one of them.
std::optional<CheckOptions> SwappedCollectives(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> one = AnyOp(plan, Op::kCollectiveBegin, random);
  if (!one) return std::nullopt;
  const std::uint32_t id = At(plan, *one).collective;
  std::vector<Place> others = PlacesOf(plan, [&](const Instruction& other) {
    return other.op == Op::kCollectiveBegin && other.collective != id &&
           plan.collectives[other.collective].members == plan.collectives[id].members;
  });
  std::erase_if(others, [&](const Place& place) { return place.rank != one->rank; });
  const std::optional<Place> other = AnyOf(others, random);
  if (!other) return std::nullopt;
  std::swap(At(plan, *one), At(plan, *other));
  return kAnyBudget;
}

std::optional<CheckOptions> EarlyUpdate(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> place = AnyOp(plan, Op::kUpdate, random);
  if (!place) return std::nullopt;
  auto& list = plan.programs[place->rank].instructions;
  const auto at = list.begin() + static_cast<std::ptrdiff_t>(place->at);
  std::rotate(list.begin(), at, at + 1);
  return kAnyBudget;
}

std::optional<CheckOptions> LeakedBuffer(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> place = AnyOf(
      PlacesOf(plan, [](const Instruction& each) { return !each.frees.empty(); }), random);
  if (!place) return std::nullopt;
  At(plan, *place).frees.pop_back();
  return kAnyBudget;
}

// A forward pass gives back what a backward pass needs.
std::optional<CheckOptions> FreedEarly(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> place = AnyOp(plan, Op::kBackward, random);
  if (!place || At(plan, *place).frees.empty()) return std::nullopt;
  const std::uint32_t buffer = At(plan, *place).frees.front();
  const auto uses = [buffer](const std::vector<std::uint32_t>& listed) {
    return std::ranges::find(listed, buffer) != listed.end();
  };
  for (Instruction& each : plan.programs[place->rank].instructions) {
    if (each.op != Op::kForward || (!uses(each.makes) && !uses(each.needs))) continue;
    each.frees.push_back(buffer);
    return kAnyBudget;
  }
  return std::nullopt;
}

std::optional<CheckOptions> OverBudget(StepPlan& plan, std::mt19937_64& random) {
  const Result<PlanFacts> facts = CheckPlan(plan, {});
  if (!facts.has_value()) return std::nullopt;
  const std::uint64_t most = *std::ranges::max_element(facts->peak_bytes);
  return CheckOptions{.budget_bytes = most - 1 - random() % (most / 2 + 1)};
}

}  // namespace

std::vector<DamageKind> DamageKinds() {
  return {{"missing receive", WithoutOne(Op::kReceive)},
          {"missing send", WithoutOne(Op::kSend)},
          {"missing end of a collective", WithoutOne(Op::kCollectiveEnd)},
          {"missing backward pass", WithoutOne(Op::kBackward)},
          {"missing swap in", WithoutOne(Op::kSwapIn)},
          {"missing recomputation", WithoutOne(Op::kRecompute)},
          {"missing instruction", WithoutAny},
          {"swapped messages", SwappedMessages},
          {"cyclic wait", CyclicWait},
          {"wrong micro-batch", WrongMicroBatch},
          {"swapped collectives", SwappedCollectives},
          {"early update", EarlyUpdate},
          {"leaked buffer", LeakedBuffer},
          {"buffer freed early", FreedEarly},
          {"over budget", OverBudget}};
}

}  // namespace forebay::train
