// ExtentTable: state and home of each extent of a data set, and the staging pass that walks through
// them. A part of Dataset, which guards it with its mutex and calls the waiters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "server/plan/placement.h"

namespace forebay::stage {

// An extent is *absent*, *loading* (somebody has claimed it), *resident* (on a tier), or *failed*.
// Its *home* is the tier that has space reserved for it. It is *remote* if another node of the job
// reads it from the GFS and keeps it; a remote extent that has a home here is a *copy*.
// Logic only; not thread-safe.
class ExtentTable {
 public:
  // Once, when the catalog is known: which extents are on a tier already, and their homes.
  void Fill(const std::vector<bool>& resident, std::vector<plan::HomeTier> homes);
  // 0 before Fill.
  std::uint32_t size() const { return static_cast<std::uint32_t>(states_.size()); }

  // --- homes --------------------------------------------------------------------------------
  plan::HomeTier home(ExtentId extent) const { return homes_[extent.value()]; }
  // A pass that has skipped the extent, because it had no home, comes back to it.
  void SetHome(ExtentId extent, plan::HomeTier home);
  bool HasHome(ExtentId extent) const { return home(extent) != plan::HomeTier::kNone; }
  bool IsRemote(ExtentId extent) const { return !remote_.empty() && remote_[extent.value()]; }
  bool IsCopy(ExtentId extent) const { return IsRemote(extent) && HasHome(extent); }
  // These are described at the functions of Dataset that have their names.
  void SetRemote(std::vector<bool> remote);
  void MakeLocal(ExtentId extent);
  std::vector<ExtentId> WithoutHome() const;

  void WantCopies(std::span<const ExtentId> extents);
  void UnwantCopies(std::span<const ExtentId> extents);
  std::vector<ExtentId> UnwantedCopies() const;
  std::optional<plan::HomeTier> DropCopy(ExtentId extent);

  // --- the pass -----------------------------------------------------------------------------
  // Prepares the next pass, which claims all extents that have a home, are not loading, and are not
  // `left_alone`, for example because they are resident. False, and nothing changes, if there are
  // none.
  bool BeginAgain(const std::vector<bool>& left_alone);
  std::optional<ExtentId> NextWithoutHome();
  bool GiveHome(ExtentId extent, plan::HomeTier home);
  // Local extents in staging order, then those that got a home too late, and copies.
  std::optional<ExtentId> ClaimNext();
  // Whether every extent was claimed or skipped, and no load is under way but of extents without a
  // home that are read ahead: these are no part of the pass, and there may always be some.
  bool HasPassEnded() const { return next_ == size() && late_.empty() && loading_ == 0; }

  // --- loads --------------------------------------------------------------------------------
  bool Claim(ExtentId extent, bool ahead = false);
  bool IsLoading(ExtentId extent) const {
    const State state = states_[extent.value()];
    return state == State::kLoading || state == State::kLoadingAhead;
  }
  bool HasFailed(ExtentId extent) const { return states_[extent.value()] == State::kFailed; }
  // The outcome of a claimed load. kAbsent: somebody else may load it at once.
  enum class Outcome : std::uint8_t { kResident, kFailed, kAbsent };
  void EndLoad(ExtentId extent, Outcome outcome);

 private:
  enum class State : std::uint8_t {
    kAbsent,
    kLoading,
    kLoadingAhead,  // read ahead, and had no home when it was claimed
    kResident,
    kFailed,
  };

  std::vector<State> states_;
  std::vector<plan::HomeTier> homes_;
  std::vector<bool> remote_;           // by extent; empty: all are local
  std::vector<std::uint32_t> wanted_;  // streams that want a copy of it; empty: none does
  std::uint32_t next_ = 0;  // the pass has claimed or skipped all extents before this one
  // All before this one have a home, were loaded, or are remote.
  std::uint32_t next_without_home_ = 0;
  // The pass claims these after all others: copies, and extents before next_ that got a home while
  // it went on. An extent may be listed twice.
  std::deque<ExtentId> late_;
  std::uint64_t loading_ = 0;  // extents in state kLoading
};

}  // namespace forebay::stage
