#include "server/tier/scratch_account.h"

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kStepBytes = SharedRegion::kHugePageBytes;

}  // namespace

ScratchGrant& ScratchGrant::operator=(ScratchGrant&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  account_ = std::exchange(other.account_, nullptr);
  owner_ = std::move(other.owner_);
  bytes_ = std::exchange(other.bytes_, 0);
  reserved_bytes_ = other.reserved_bytes_;
  withheld_ = std::move(other.withheld_);
  return *this;
}

void ScratchGrant::GiveBack() {
  if (account_ == nullptr) return;
  ScratchAccount& account = *std::exchange(account_, nullptr);
  std::lock_guard lock(account.mutex_);
  account.reserved_bytes_ -= reserved_bytes_;
  account.leased_bytes_ -= reserved_bytes_ + withheld_.bytes();
  account.GiveBackLocked(std::move(withheld_));
  const auto owned = account.leases_.find(owner_);
  FOREBAY_CHECK(owned != account.leases_.end());
  if (--owned->second == 0) account.leases_.erase(owned);
}

Result<std::unique_ptr<ScratchAccount>> ScratchAccount::Create(RamArena& arena,
                                                               std::uint64_t reserve_bytes) {
  const std::uint64_t half = arena.capacity_bytes() / 2 / kStepBytes * kStepBytes;
  WithheldMemory reserve;
  if (reserve_bytes > 0) {
    FOREBAY_ASSIGN(reserve, arena.Withhold(reserve_bytes));
  }
  const std::uint64_t limit = std::max(half, reserve.bytes());
  return std::unique_ptr<ScratchAccount>(new ScratchAccount(arena, std::move(reserve), limit));
}

Result<ScratchGrant> ScratchAccount::Lease(const std::string& owner, std::uint64_t bytes) {
  if (bytes == 0) return Error(ErrorCode::kInvalidArgument, "a lease of 0 bytes");
  std::lock_guard lock(mutex_);
  const auto owned = leases_.find(owner);
  if (owned != leases_.end() && owned->second >= kLeasesPerOwnerMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "one client holds " + std::to_string(kLeasesPerOwnerMax) +
                     " leases at most (kStreamsPerClientMax): give one back, or lease more bytes "
                     "at once");
  }
  if (bytes > limit_bytes_ || AccountedBytes(bytes) > limit_bytes_ - leased_bytes_) {
    return RefusalLocked(bytes);
  }
  ScratchGrant grant;
  grant.reserved_bytes_ = std::min(AccountedBytes(bytes), reserve_.bytes() - reserved_bytes_);
  const std::uint64_t more = AccountedBytes(bytes) - grant.reserved_bytes_;
  if (more > 0) {
    Result<WithheldMemory> withheld = WithholdLocked(more);
    if (!withheld.has_value()) return RefusalLocked(bytes);
    grant.withheld_ = *std::move(withheld);
  }
  grant.account_ = this;
  grant.owner_ = owner;
  grant.bytes_ = bytes;
  reserved_bytes_ += grant.reserved_bytes_;
  leased_bytes_ += grant.reserved_bytes_ + more;
  ++leases_[owner];
  return grant;
}

Result<WithheldMemory> ScratchAccount::WithholdLocked(std::uint64_t bytes) {
  if (!planner_.take_bytes) return arena_.Withhold(bytes);
  if (!planner_.take_bytes(bytes)) {
    return Error(ErrorCode::kResourceExhausted, "extents are planned to lie there");
  }
  Result<WithheldMemory> withheld = arena_.Withhold(bytes);
  if (!withheld.has_value()) planner_.give_bytes(bytes);
  return withheld;
}

void ScratchAccount::GiveBackLocked(WithheldMemory withheld) {
  const std::uint64_t bytes = withheld.bytes();
  withheld = WithheldMemory();
  if (bytes > 0 && planner_.give_bytes) planner_.give_bytes(bytes);
}

Error ScratchAccount::RefusalLocked(std::uint64_t bytes) const {
  std::uint64_t spare = arena_.untouched_bytes();
  if (planner_.left_bytes) {
    spare = std::min(spare, planner_.left_bytes() / kStepBytes * kStepBytes);
  }
  const std::uint64_t left =
      std::min(limit_bytes_ - leased_bytes_, reserve_.bytes() - reserved_bytes_ + spare);
  return Error(ErrorCode::kResourceExhausted,
               "a lease of " + std::to_string(bytes) + " bytes: " + std::to_string(left) +
                   " are left (" + std::to_string(leased_bytes_) + " of at most " +
                   std::to_string(limit_bytes_) +
                   " are leased, and the RAM tier keeps what it has touched or plans to fill); "
                   "raise the daemon's tier.ram.scratch_reserve (" +
                   std::to_string(reserve_.bytes()) + " bytes), or ask for less");
}

ScratchAccount::Stats ScratchAccount::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats = {.limit_bytes = limit_bytes_,
                 .reserve_bytes = reserve_.bytes(),
                 .leased_bytes = leased_bytes_,
                 .leases = 0};
  for (const auto& [owner, count] : leases_) stats.leases += count;
  return stats;
}

}  // namespace forebay::tier
