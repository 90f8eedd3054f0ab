// BudgetShare: the right to memory of which several users together may have only so much.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace forebay::fetch {

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

}  // namespace forebay::fetch
