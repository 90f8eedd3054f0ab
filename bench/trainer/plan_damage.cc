// Each kind of damage searches a sound plan for the places where it is possible, and spoils one of
// them at random: it leaves out an instruction, moves it or changes its argument. CheckPlan has to
// refuse every plan that comes out of this, so no damage may leave a sound plan. A kind that finds
// no place returns nothing, and forebay_plan_bench draws another plan.
#include "bench/trainer/plan_damage.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace forebay::train {
namespace {

// Without a limit on memory, so that the checker refuses a plan for its damage and not for its
// size.
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
  // Not uniform_int_distribution, which draws other numbers in other standard libraries: a seed
  // names the same damage everywhere. The bias of the remainder does not matter here.
  return places[random() % places.size()];
}

std::optional<Place> AnyOp(const StepPlan& plan, Op op, std::mt19937_64& random) {
  return AnyOf(PlacesOf(plan, [op](const Instruction& each) { return each.op == op; }), random);
}

void Erase(StepPlan& plan, const Place& place) {
  auto& list = plan.programs[place.rank].instructions;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(place.at));
}

// Leaves out one instruction of kind `op`. The kinds that it is used for are those of which a
// sound plan has no instruction too many.
Damage WithoutOne(Op op) {
  return [op](StepPlan& plan, std::mt19937_64& random) -> std::optional<CheckOptions> {
    const std::optional<Place> place = AnyOp(plan, op, random);
    if (!place) return std::nullopt;
    Erase(plan, *place);
    return kAnyBudget;
  };
}

std::optional<CheckOptions> WithoutAny(StepPlan& plan, std::mt19937_64& random) {
  // A plan without one kSwapEnd is sound, and at most takes more memory: a buffer that is still on
  // its way out may come back (kSwapIn). Without any other instruction the plan is broken.
  const auto all =
      PlacesOf(plan, [](const Instruction& each) { return each.op != Op::kSwapEnd; });
  Erase(plan, *AnyOf(all, random));
  return kAnyBudget;
}

// Exchanges two receives of one channel and peer. The sender keeps its order, so that each message
// would be taken for the other. Both are on one rank, because an instruction names buffers of its
// own rank.
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

// Moves the receive of an output's gradient before the send of that output. The peer computes the
// gradient from the output, so each of the two ranks waits for the other.
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
  // In a sound plan the send exists and lies before the receive, as rotate() requires.
  const auto from = list.begin() + static_cast<std::ptrdiff_t>(wait->at);
  std::rotate(send, from, from + 1);
  return kAnyBudget;
}

// Lets a send name another micro-batch than its buffer and its receive do. A plan of one
// micro-batch has no other to name.
std::optional<CheckOptions> WrongMicroBatch(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> place = AnyOp(plan, Op::kSend, random);
  if (!place || plan.micro_batches < 2) return std::nullopt;
  Instruction& send = At(plan, *place);
  send.micro_batch = (send.micro_batch + 1) % plan.micro_batches;
  return kAnyBudget;
}

// Exchanges the begins of two collectives on one of their members. The other members keep their
// order, so that the members would reduce different data with each other.
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

// Moves the optimiser's step to the beginning, where no gradient has been summed.
std::optional<CheckOptions> EarlyUpdate(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> place = AnyOp(plan, Op::kUpdate, random);
  if (!place) return std::nullopt;
  auto& list = plan.programs[place->rank].instructions;
  const auto at = list.begin() + static_cast<std::ptrdiff_t>(place->at);
  std::rotate(list.begin(), at, at + 1);
  return kAnyBudget;
}

// An instruction forgets to free a buffer, so the buffer is still there at the end of the step.
std::optional<CheckOptions> LeakedBuffer(StepPlan& plan, std::mt19937_64& random) {
  const std::optional<Place> place = AnyOf(
      PlacesOf(plan, [](const Instruction& each) { return !each.frees.empty(); }), random);
  if (!place) return std::nullopt;
  At(plan, *place).frees.pop_back();
  return kAnyBudget;
}

// A forward pass frees a buffer that a backward pass needs. The buffer is one that the backward
// pass frees, so a sound plan keeps it until then.
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
  // The plan stays sound, and the budget is too small for the fullest rank: by one byte at least,
  // and by about half of the peak at most, because a budget of 0 would mean no limit.
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
