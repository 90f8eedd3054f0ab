// HostPool: memory for what is swapped out, bounded in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

// Not thread-safe. Blocks that come back are handed out again to requests of the same size, which
// is what steps ask for, so that their pages are there already.
class HostPool {
 public:
  explicit HostPool(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Room of `bytes`, until Give. kResourceExhausted beyond the capacity: nothing is taken then.
  Result<std::span<std::byte>> Take(std::size_t bytes);
  void Give(std::span<std::byte> block);

  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }  // used at once, ever

 private:
  using Block = std::unique_ptr<std::byte[]>;

  std::uint64_t capacity_bytes_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t idle_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::map<std::size_t, std::vector<Block>> idle_;  // by size
  std::map<std::byte*, Block> taken_;
};

}  // namespace forebay::train
