// ScratchAccount: what the RAM tier lends of its memory to processes of the job, which take as much
// of their own: tier and leases together never exceed what the tier was given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/tier/ram_arena.h"

namespace forebay::tier {

class ScratchAccount;

// A lease; given back on destruction, on any thread. Move-only; the account must outlive it.
class ScratchGrant {
 public:
  ScratchGrant() = default;
  ScratchGrant(ScratchGrant&& other) noexcept { *this = std::move(other); }
  ScratchGrant& operator=(ScratchGrant&& other) noexcept;
  ~ScratchGrant() { GiveBack(); }

  std::uint64_t bytes() const { return bytes_; }  // as asked for; whole huge pages are accounted

 private:
  friend class ScratchAccount;
  void GiveBack();

  ScratchAccount* account_ = nullptr;
  std::string owner_;
  std::uint64_t bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;  // of the account's reserve
  WithheldMemory withheld_;           // the rest
};

// Thread-safe. Nothing here is memory that anybody uses: the arena leaves it unmade.
class ScratchAccount {
 public:
  static constexpr std::uint32_t kLeasesPerOwnerMax = limits::kStreamsPerClientMax;

  // Who plans what extents lie in the arena. Called under the account's lock.
  struct Planner {
    std::function<std::uint64_t()> left_bytes;      // that no extent is planned for
    std::function<bool(std::uint64_t)> take_bytes;  // false where fewer are left
    std::function<void(std::uint64_t)> give_bytes;
  };

  // What `bytes` of a lease, or of the reserve, are accounted as: whole huge pages.
  static constexpr std::uint64_t AccountedBytes(std::uint64_t bytes) {
    constexpr std::uint64_t kStep = SharedRegion::kHugePageBytes;
    return (bytes + kStep - 1) / kStep * kStep;
  }

  // Withholds `reserve_bytes`, which may be 0, from `arena` for as long as the account lives, for
  // leases only. Beyond it leases take what the arena has never touched and nobody plans with, but
  // leave half of its capacity. Errors as RamArena::Withhold; the arena, which is borrowed, should
  // be new.
  static Result<std::unique_ptr<ScratchAccount>> Create(RamArena& arena,
                                                        std::uint64_t reserve_bytes);

  // Once, before the first lease; without it, all that was never touched may be leased. What it
  // refers to outlives all leases.
  void PlanWith(Planner planner) { planner_ = std::move(planner); }

  // A lease of `bytes` for `owner`, a name; all of it or nothing. kInvalidArgument for 0 bytes;
  // kResourceExhausted names what is left and the keys, or the limit of leases of one owner.
  Result<ScratchGrant> Lease(const std::string& owner, std::uint64_t bytes);

  struct Stats {
    std::uint64_t limit_bytes = 0;    // that may be leased at once, if never touched
    std::uint64_t reserve_bytes = 0;  // of them, that the tier leaves alone
    std::uint64_t leased_bytes = 0;   // in whole huge pages
    std::uint64_t leases = 0;
  };
  Stats stats() const;

 private:
  friend class ScratchGrant;
  ScratchAccount(RamArena& arena, WithheldMemory reserve, std::uint64_t limit_bytes)
      : arena_(arena), reserve_(std::move(reserve)), limit_bytes_(limit_bytes) {}
  Result<WithheldMemory> WithholdLocked(std::uint64_t bytes);
  void GiveBackLocked(WithheldMemory withheld);
  Error RefusalLocked(std::uint64_t bytes) const;

  RamArena& arena_;
  const WithheldMemory reserve_;
  const std::uint64_t limit_bytes_;
  Planner planner_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t reserved_bytes_ = 0;  // of the reserve, leased
  std::uint64_t leased_bytes_ = 0;    // in all
  std::unordered_map<std::string, std::uint32_t> leases_;  // by owner; none that is 0
};

}  // namespace forebay::tier
