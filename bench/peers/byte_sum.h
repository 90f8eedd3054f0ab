// ByteSum: touches every byte of a sample, as cheaply as memory allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace forebay::bench {

// The sum, modulo 2^64, of the bytes taken as little-endian 64-bit words, the last one filled
// up with zeros. What every contender of a benchmark computes for every sample it gets: no byte
// can be skipped, and the loop is bound by memory, not by arithmetic, as numpy's is: it uses
// the widest vectors of the processor it runs on.
std::uint64_t ByteSum(std::span<const std::byte> bytes);

// ByteSum over the pieces of one sample, wherever it is cut. Not thread-safe.
class ByteSummer {
 public:
  void Add(std::span<const std::byte> piece);
  std::uint64_t Finish();

 private:
  void Flush();

  std::byte tail_[sizeof(std::uint64_t)] = {};
  std::size_t tail_bytes_ = 0;
  std::uint64_t sum_ = 0;
};

}  // namespace forebay::bench
