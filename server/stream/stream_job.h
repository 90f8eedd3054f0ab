// One batch on its way through a session.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/stream/stream_session.h"

namespace forebay::stream {

// Bytes of an account that several draw on, given back at the end. Move-only.
class BudgetShare {
 public:
  using Account = std::shared_ptr<std::atomic<std::uint64_t>>;
  BudgetShare() = default;
  // Invalid where the account has not so many bytes left.
  static BudgetShare Take(Account account, std::uint64_t bytes) {
    std::uint64_t left = account->load(std::memory_order_relaxed);
    do {
      if (bytes > left) return {};
    } while (!account->compare_exchange_weak(left, left - bytes, std::memory_order_relaxed));
    BudgetShare share;
    share.account_ = std::move(account);
    share.bytes_ = bytes;
    return share;
  }
  BudgetShare(BudgetShare&& other) noexcept
      : account_(std::move(other.account_)), bytes_(std::exchange(other.bytes_, 0)) {}
  BudgetShare& operator=(BudgetShare&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BudgetShare() {
    if (account_) account_->fetch_add(bytes_, std::memory_order_relaxed);
  }
  bool valid() const { return account_ != nullptr; }

 private:
  Account account_;
  std::uint64_t bytes_ = 0;
};

struct StreamSession::Job {
  std::shared_ptr<StreamSession> session;  // keeps it alive until the batch is settled
  BatchName name;
  std::shared_ptr<BatchSlot> slot;         // where its stream shares slots
  std::vector<tier::ExtentRef> refs;       // pinned by a wait for the GFS
  GatheredValues gathered;                 // decoded by an attempt that found no slot memory
  BudgetShare gathered_share;              // of what all jobs may keep so
  std::int64_t started_ns = 0;
  std::vector<ExtentId> awaited;           // of the GFS, where the registry knows it as waiting
  std::int64_t awaited_since_ns = 0;
  int refetches = 0;
  bool waited = false;                     // for the GFS
  bool wants_all_extents = false;          // what was decoded has gone while it waited
  BatchRoom room;                          // under the registry's lock until it is settled
  // What the registry knows of its attempts to get slot memory.
  bool is_starved = false;                 // an attempt has failed: the next ones are alone
  bool is_denied = false;                  // parked for scratch, without an attempt
  bool takes_unasked = false;              // slot memory that the ledger knows nothing of
  bool has_scratch = false;
  std::uint64_t scratch_bytes = 0;         // where has_scratch
  std::uint64_t releases_seen = 0;         // when the attempt began
  bool slots_were_empty = false;           // likewise
};

}  // namespace forebay::stream
