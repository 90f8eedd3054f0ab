// SequencePlan: what a sequence does, drawn from its seed before anything is done.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/io/testing/fault_injector.h"
#include "server/plan/placement.h"
#include "server/stage/packed/compression.h"
#include "tests/model/data_plan.h"

namespace forebay::model {

enum class Action : std::uint8_t {
  kStage,            // and wait
  kStageInBackground,
  kRebuild,          // and wait
  kDemand,           // extents, by any access
  kEpoch,            // of a stream of its own
  kPartOfEpoch,
  kReadOn,           // some steps of a stream that stays open
  kEvictRam,
  kEvictSsd,
  kEvictAll,
  kEvictSome,
  kReplaceObject,    // other bytes, another modification time
  kFlipObject,       // one bit; size and modification time stay
  kUnflipObject,     // the bytes that were flipped are right again
  kHideObject,
  kShowObject,
  kFlipSegment,      // one bit of a file on the SSD
  kTruncateSegment,
  kRemoveSegment,
  kFlipRam,          // one bit of a resident extent; found by a scrub
  kScrub,
  kReadNoise,        // one bit of one read from the GFS, once
  kFillSsd,          // others write until nothing is free
  kFreeSsd,
  kRestart,          // when nothing is under way
  kKill,             // in the middle of staging
  kLosePower,
  kLoseState,        // a restart without what was saved
  kFlipState,        // a restart with a flipped bit in what was saved
  kFlipManifest,     // a restart with a flipped bit in the SSD's manifest
};
inline constexpr std::size_t kActionCount = static_cast<std::size_t>(Action::kFlipManifest) + 1;
std::string_view ActionName(Action action);

enum class FaultPlace : std::uint8_t { kGfs, kSsd, kState };

// Armed while a step's action is performed.
struct StepFault {
  FaultPlace place = FaultPlace::kSsd;
  io::Fault fault;
};
// "ssd EIO", "gfs EIO", ...
std::string FaultName(const StepFault& fault);
// All that a plan may draw.
std::vector<std::string> FaultNames();

struct Step {
  Action action = Action::kStage;
  std::uint64_t seed = 0;  // of what is chosen while it is performed
  std::optional<StepFault> fault;
};

struct TierPlan {
  plan::RamPlan ram;
  std::uint64_t ssd_bytes = 0;  // 0: no SSD tier
  bool are_ample = false;       // nothing is ever evicted for want of room
  stage::Compression compression = stage::Compression::kOff;
  bool persists = false;
  bool saves_state = false;
  std::uint32_t readers = 1;
  std::uint32_t workers = 1;
  std::uint64_t completion_seed = 0;
};

struct SequencePlan {
  std::uint64_t seed = 0;
  DataPlan data;
  TierPlan tiers;
  std::vector<Step> steps;

  std::string Describe() const;
};

SequencePlan DrawSequence(std::uint64_t seed);

}  // namespace forebay::model
