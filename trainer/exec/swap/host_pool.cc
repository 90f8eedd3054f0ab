// Blocks are kept by size after their use: a training step asks for the same sizes again, and
// memory that is new to the process costs page faults. Idle blocks of other sizes are freed only
// when the capacity is reached.
#include "trainer/exec/swap/host_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::train {

HostPool::HostPool(std::uint64_t capacity_bytes, Allocate allocate)
    : capacity_bytes_(capacity_bytes), allocate_(std::move(allocate)) {
  if (allocate_) return;
  // Not zeroed: a copy fills the block.
  allocate_ = [](std::size_t bytes) -> Block {
    return std::make_unique_for_overwrite<std::byte[]>(bytes);
  };
}

Result<std::span<std::byte>> HostPool::Take(std::size_t bytes) {
  FOREBAY_CHECK(bytes > 0);
  if (bytes > capacity_bytes_ - used_bytes_) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("no room on the host for {} bytes that are swapped out: {} of {} "
                             "are in use",
                             bytes, used_bytes_, capacity_bytes_));
  }
  Block block;
  // Also made for a size that has none yet.
  std::vector<Block>& same = idle_[bytes];
  if (!same.empty()) {
    block = std::move(same.back());
    same.pop_back();
    idle_bytes_ -= bytes;
  } else {
    // Idle blocks of other sizes make room.
    for (auto other = idle_.begin();
         other != idle_.end() && bytes > capacity_bytes_ - used_bytes_ - idle_bytes_;) {
      while (!other->second.empty() && bytes > capacity_bytes_ - used_bytes_ - idle_bytes_) {
        other->second.pop_back();
        idle_bytes_ -= other->first;
      }
      ++other;
    }
    block = allocate_(bytes);
  }
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  const std::span<std::byte> room(block.get(), bytes);
  taken_[block.get()] = std::move(block);
  return room;
}

// The block goes to the idle ones of its size, where the next step finds it.
void HostPool::Give(std::span<std::byte> block) {
  const auto found = taken_.find(block.data());
  FOREBAY_CHECK(found != taken_.end());
  idle_[block.size()].push_back(std::move(found->second));
  taken_.erase(found);
  used_bytes_ -= block.size();
  idle_bytes_ += block.size();
}

}  // namespace forebay::train
