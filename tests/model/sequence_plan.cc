#include "tests/model/sequence_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/model/model_random.h"

namespace forebay::model {
namespace {

using io::FaultKind;
using io::IoCall;

struct ActionRow {
  std::string_view name;
  std::uint32_t weight = 0;
  bool may_meet_faults = false;
};

// In the order of Action.
constexpr std::array<ActionRow, kActionCount> kActions = {{
    {"stage", 14, true},
    {"stage in the background", 5, true},
    {"rebuild", 8, true},
    {"demand", 7, true},
    {"epoch", 18, true},
    {"part of an epoch", 6, true},
    {"read on", 9, true},
    {"evict ram", 4, true},
    {"evict ssd", 4, true},
    {"evict all", 5, true},
    {"evict some", 6, true},
    {"replace an object", 3, false},
    {"flip a bit of an object", 4, false},
    {"flip it back", 2, false},
    {"hide an object", 2, false},
    {"show one again", 4, false},
    {"flip a bit of a segment", 6, false},
    {"truncate a segment", 3, false},
    {"remove a segment", 3, false},
    {"flip a bit in ram, and scrub", 3, false},
    {"scrub", 2, true},
    {"read noise", 3, false},
    {"fill the ssd", 2, false},
    {"free the ssd", 2, false},
    {"restart", 4, false},
    {"kill", 3, true},
    {"lose power", 4, true},
    {"lose the state", 2, false},
    {"flip a bit of the state", 2, false},
    {"flip a bit of the manifest", 2, false},
}};

constexpr FaultKind kSsdFaults[] = {FaultKind::kEio,   FaultKind::kEio,     FaultKind::kEnospc,
                                    FaultKind::kErofs, FaultKind::kShort,   FaultKind::kBitFlip,
                                    FaultKind::kTornWrite};
constexpr FaultKind kStateFaults[] = {FaultKind::kEio, FaultKind::kEnospc};

std::string_view KindName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kEio: return "EIO";
    case FaultKind::kEnospc: return "ENOSPC";
    case FaultKind::kErofs: return "EROFS";
    case FaultKind::kShort: return "short transfer";
    case FaultKind::kBitFlip: return "flipped bit";
    case FaultKind::kTornWrite: return "torn write";
    default: return "other";
  }
}

StepFault DrawFault(const TierPlan& tiers, ModelRandom& random) {
  StepFault drawn;
  const std::uint32_t weights[] = {4, tiers.ssd_bytes > 0 ? 6U : 0U, tiers.saves_state ? 1U : 0U};
  drawn.place = static_cast<FaultPlace>(random.Weighted(weights));
  if (drawn.place == FaultPlace::kSsd) drawn.fault.kind = random.OneOf(kSsdFaults);
  if (drawn.place == FaultPlace::kState) drawn.fault.kind = random.OneOf(kStateFaults);
  const bool is_silent = drawn.fault.kind == FaultKind::kBitFlip;
  if (drawn.place == FaultPlace::kSsd && (is_silent || random.Chance(50))) {
    drawn.fault.call = random.Chance(50) ? IoCall::kRead : IoCall::kWrite;
    if (!io::Applies(drawn.fault.kind, *drawn.fault.call)) drawn.fault.call.reset();
  }
  drawn.fault.nth = random.Chance(50) ? 1 : random.Between(1, 16);
  drawn.fault.is_persistent = random.Chance(50);
  drawn.fault.seed = random.Word();
  return drawn;
}

TierPlan DrawTiers(const DataPlan& data, std::uint64_t data_bytes, ModelRandom& random) {
  TierPlan tiers;
  const std::uint64_t extent = data.extent_bytes;
  constexpr std::uint32_t kSsdWeights[] = {20, 40, 40};
  const std::size_t ssd = random.Weighted(kSsdWeights);
  switch (ssd) {
    case 0: break;
    // A segment has a trailer, and extents are cut short.
    case 1: tiers.ssd_bytes = 4 * data_bytes + 16 * extent; break;
    default: tiers.ssd_bytes = std::max(data_bytes / 2, 3 * extent); break;
  }
  if (data.format == catalog::Format::kRaw && random.Chance(35)) {
    tiers.compression = stage::Compression::kBalanced;
  }
  tiers.ram.largest_extent_bytes = extent;
  tiers.ram.has_passing_extents = tiers.ssd_bytes > 0 ||
                                  data.format == catalog::Format::kTar ||
                                  tiers.compression != stage::Compression::kOff;
  constexpr std::uint32_t kRamWeights[] = {30, 40, 30};
  const std::size_t ram = random.Weighted(kRamWeights);
  switch (ram) {
    case 0: tiers.ram.capacity_bytes = 2 * data_bytes + 16 * extent; break;
    case 1: tiers.ram.capacity_bytes = data_bytes / 3 + 8 * extent; break;
    default: tiers.ram.capacity_bytes = 8 * extent; break;
  }
  tiers.are_ample = ram == 0 && ssd != 2;
  tiers.persists = tiers.ssd_bytes > 0 && random.Chance(30);
  tiers.saves_state = random.Chance(60);
  tiers.readers = static_cast<std::uint32_t>(random.Between(1, 3));
  tiers.workers = static_cast<std::uint32_t>(random.Between(1, 2));
  tiers.completion_seed = random.Chance(50) ? random.Word() : 0;
  return tiers;
}

bool IsPossible(Action action, const TierPlan& tiers) {
  switch (action) {
    case Action::kEvictSsd: case Action::kFlipSegment: case Action::kTruncateSegment:
    case Action::kRemoveSegment: case Action::kFillSsd: case Action::kFreeSsd:
    case Action::kFlipManifest:
      return tiers.ssd_bytes > 0;
    case Action::kLoseState: case Action::kFlipState: return tiers.saves_state;
    default: return true;
  }
}

std::vector<Step> DrawSteps(const TierPlan& tiers, ModelRandom& random) {
  std::array<std::uint32_t, kActionCount> weights;
  for (std::size_t i = 0; i < kActionCount; ++i) {
    weights[i] = IsPossible(static_cast<Action>(i), tiers) ? kActions[i].weight : 0;
  }
  std::vector<Step> steps(random.Between(5, 30));
  const std::uint64_t fault_percent = random.OneOf({0U, 15U, 35U});
  for (Step& step : steps) {
    const std::size_t index = random.Weighted(weights);
    step.action = static_cast<Action>(index);
    step.seed = random.Word();
    if (kActions[index].may_meet_faults && random.Chance(fault_percent)) {
      step.fault = DrawFault(tiers, random);
    }
  }
  return steps;
}

}  // namespace

std::string_view ActionName(Action action) {
  return kActions[static_cast<std::size_t>(action)].name;
}

std::string FaultName(const StepFault& fault) {
  constexpr std::string_view kPlaces[] = {"gfs", "ssd", "state"};
  return fmt::format("{} {}", kPlaces[static_cast<std::size_t>(fault.place)],
                     KindName(fault.fault.kind));
}

std::vector<std::string> FaultNames() {
  std::vector<std::string> names = {FaultName({.place = FaultPlace::kGfs, .fault = {}})};
  for (const FaultKind kind : kSsdFaults) {
    names.push_back(FaultName({.place = FaultPlace::kSsd, .fault = {.kind = kind}}));
  }
  for (const FaultKind kind : kStateFaults) {
    names.push_back(FaultName({.place = FaultPlace::kState, .fault = {.kind = kind}}));
  }
  return names;
}

std::string SequencePlan::Describe() const {
  std::string text = fmt::format(
      "seed {}: {}, {} objects, extents of {}, ram {}, ssd {}, compress {}{}{}, {} readers, {} "
      "workers\n",
      seed, catalog::FormatName(data.format), data.paths.size(), data.extent_bytes,
      tiers.ram.capacity_bytes, tiers.ssd_bytes, stage::CompressionName(tiers.compression),
      tiers.persists ? ", persist" : "", tiers.saves_state ? ", saved state" : "", tiers.readers,
      tiers.workers);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    text += fmt::format("  {:2} {}", i, ActionName(steps[i].action));
    if (const auto& fault = steps[i].fault) {
      text += fmt::format(", with {} at operation {}{}{}", FaultName(*fault), fault->fault.nth,
                          fault->fault.is_persistent ? " and from then on" : "",
                          !fault->fault.call                           ? ""
                          : fault->fault.call == io::IoCall::kRead ? ", reads only"
                                                                       : ", writes only");
    }
    text += '\n';
  }
  return text;
}

SequencePlan DrawSequence(std::uint64_t seed) {
  ModelRandom random(seed);
  SequencePlan plan;
  plan.seed = seed;
  plan.data = DrawData(random);
  // The objects themselves are drawn from the same seed when the sequence begins.
  std::uint64_t data_bytes = 0;
  ModelRandom sizes(seed);
  for (const std::string& path : plan.data.paths) {
    data_bytes += plan.data.DrawObject(path, sizes).bytes.size();
  }
  plan.tiers = DrawTiers(plan.data, data_bytes, random);
  plan.steps = DrawSteps(plan.tiers, random);
  return plan;
}

}  // namespace forebay::model
