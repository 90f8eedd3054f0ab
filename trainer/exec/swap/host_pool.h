// HostPool: memory of the host for what is swapped out, bounded in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

// Not thread-safe. Blocks that come back are given out again to requests of the same size, because
// steps repeat their requests and used memory has its pages already.
class HostPool {
 public:
  using Block = std::shared_ptr<std::byte[]>;
  using Allocate = std::function<Block(std::size_t)>;

  // `allocate` makes memory of another kind than operator new does.
  explicit HostPool(std::uint64_t capacity_bytes, Allocate allocate = {});

  // Takes a block of `bytes`, until Give. kResourceExhausted beyond the capacity; then nothing is
  // taken.
  Result<std::span<std::byte>> Take(std::size_t bytes);
  void Give(std::span<std::byte> block);

  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }  // used at once, ever

 private:
  std::uint64_t capacity_bytes_;
  Allocate allocate_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t idle_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::map<std::size_t, std::vector<Block>> idle_;  // by size
  std::map<std::byte*, Block> taken_;
};

}  // namespace forebay::train
