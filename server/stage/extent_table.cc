// A pass has two cursors over the extents, one for those that are to be loaded (ClaimNext) and one
// for those that still lack a home (NextWithoutHome). Both only move forward, so a pass costs one
// walk each. What changes behind the first cursor goes to `late_`. Demands of readers claim any
// extent at any time.
#include "server/stage/extent_table.h"

#include <utility>

#include "proto/contract/check.h"

namespace forebay::stage {

using plan::HomeTier;

void ExtentTable::Fill(const std::vector<bool>& resident, std::vector<HomeTier> homes) {
  homes_ = std::move(homes);
  states_.resize(resident.size(), State::kAbsent);
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (resident[i]) {
      states_[i] = State::kResident;
    } else if (IsCopy(ExtentId(i))) {
      late_.emplace_back(i);
    }
  }
}

void ExtentTable::SetRemote(std::vector<bool> remote) {
  FOREBAY_CHECK(homes_.empty() || remote.size() == homes_.size());
  // A local extent that has a home here stays local: it is staged here already, or will be.
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (HasHome(ExtentId(i)) && !IsCopy(ExtentId(i))) remote[i] = false;
  }
  remote_ = std::move(remote);
}

void ExtentTable::SetHome(ExtentId extent, HomeTier home) {
  const bool is_new = home != HomeTier::kNone && !HasHome(extent);
  homes_[extent.value()] = home;
  const bool is_skipped = extent.value() < next_ || IsCopy(extent);
  if (is_new && is_skipped && states_[extent.value()] == State::kAbsent) late_.push_back(extent);
}

void ExtentTable::MakeLocal(ExtentId extent) {
  // The extent now counts as one without a home, until it gets one.
  if (!remote_.empty()) remote_[extent.value()] = false;
}

std::vector<ExtentId> ExtentTable::WithoutHome() const {
  std::vector<ExtentId> extents;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const ExtentId extent(i);
    // An extent that is being loaded is placed by its load.
    if (!HasHome(extent) && !IsLoading(extent) && !IsRemote(extent)) extents.push_back(extent);
  }
  return extents;
}

void ExtentTable::WantCopies(std::span<const ExtentId> extents) {
  wanted_.resize(size());
  for (const ExtentId extent : extents) ++wanted_[extent.value()];
}

void ExtentTable::UnwantCopies(std::span<const ExtentId> extents) {
  for (const ExtentId extent : extents) --wanted_[extent.value()];
}

std::vector<ExtentId> ExtentTable::UnwantedCopies() const {
  std::vector<ExtentId> copies;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const bool is_wanted = !wanted_.empty() && wanted_[i] > 0;
    if (IsCopy(ExtentId(i)) && !is_wanted) copies.emplace_back(i);
  }
  return copies;
}

std::optional<HomeTier> ExtentTable::DropCopy(ExtentId extent) {
  // A node may have left since the caller has looked, so that this one takes the extent over.
  if (!IsCopy(extent) || IsLoading(extent)) return std::nullopt;
  states_[extent.value()] = State::kAbsent;
  return std::exchange(homes_[extent.value()], HomeTier::kNone);
}

bool ExtentTable::BeginAgain(const std::vector<bool>& left_alone) {
  bool is_any = false;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const ExtentId extent(i);
    // Extents that are being loaded stay as they are: the demand that claimed them reports them.
    // One without a home fits on no tier: the pass would read it for nothing.
    if (IsLoading(extent) || left_alone[i] || !HasHome(extent)) continue;
    states_[i] = State::kAbsent;
    if (IsCopy(extent)) late_.push_back(extent);
    is_any = true;
  }
  if (!is_any) return false;
  // The cursors begin again, so that every extent is looked at.
  next_ = 0;
  next_without_home_ = 0;
  return true;
}

std::optional<ExtentId> ExtentTable::NextWithoutHome() {
  // The cursor does not move past an extent that is returned, because the caller may find no space
  // for it yet.
  for (; next_without_home_ < size(); ++next_without_home_) {
    const ExtentId extent(next_without_home_);
    const bool is_absent = states_[next_without_home_] == State::kAbsent;
    if (is_absent && !HasHome(extent) && !IsRemote(extent)) return extent;
  }
  return std::nullopt;
}

bool ExtentTable::GiveHome(ExtentId extent, HomeTier home) {
  FOREBAY_CHECK(home != HomeTier::kNone);
  // A demand has claimed it between NextWithoutHome and now.
  if (states_[extent.value()] != State::kAbsent) return false;
  SetHome(extent, home);
  return true;
}

std::optional<ExtentId> ExtentTable::ClaimNext() {
  // Extents of other states are being loaded for a reader, or are on a tier already. One without a
  // home may have got it and lost it again (DropCopy).
  const auto claim = [this](ExtentId extent) {
    if (states_[extent.value()] != State::kAbsent || !HasHome(extent)) return false;
    return Claim(extent);
  };
  while (next_ < size()) {
    const ExtentId candidate(next_++);
    if (!IsCopy(candidate) && claim(candidate)) return candidate;
  }
  while (!late_.empty()) {
    const ExtentId candidate = late_.front();
    late_.pop_front();
    if (claim(candidate)) return candidate;
  }
  return std::nullopt;
}

bool ExtentTable::Claim(ExtentId extent, bool ahead) {
  // This is what makes each byte be read once: whoever does not get the claim waits for the load.
  State& state = states_[extent.value()];
  if (IsLoading(extent)) return false;
  // An extent that failed may be claimed, because the GFS may answer by now; and one that is
  // resident, because it may have been evicted.
  state = ahead && !HasHome(extent) ? State::kLoadingAhead : State::kLoading;
  if (state == State::kLoading) ++loading_;
  return true;
}

void ExtentTable::EndLoad(ExtentId extent, Outcome outcome) {
  FOREBAY_CHECK(IsLoading(extent));
  if (states_[extent.value()] == State::kLoading) --loading_;
  switch (outcome) {
    case Outcome::kResident: states_[extent.value()] = State::kResident; break;
    case Outcome::kFailed: states_[extent.value()] = State::kFailed; break;
    case Outcome::kAbsent: states_[extent.value()] = State::kAbsent; break;
  }
}

}  // namespace forebay::stage
