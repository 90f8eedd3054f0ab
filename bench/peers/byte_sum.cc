// The work that every contender does with a sample. It must be cheap, else it would hide the
// differences between loaders, and it must touch every byte, else a loader that delivers pages
// which nobody has read would look fast. A sum that is faster in one contender than in another
// would falsify a comparison, so C++ chooses the instruction set at run time, as numpy does.
#include "bench/peers/byte_sum.h"

#include <cstring>

namespace forebay::bench {
namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kStrideBytes = kLanes * sizeof(std::uint64_t);

// Sums whole strides. One text, compiled for several instruction sets. Each lane has its own sum,
// so that the additions do not wait for each other and the compiler can use the widest vectors: the
// loop is then bound by memory.
[[gnu::always_inline]] inline std::uint64_t SumStrides(const std::byte* data,
                                                       std::size_t strides) {
  std::uint64_t lanes[kLanes] = {};
  for (std::size_t stride = 0; stride < strides; ++stride, data += kStrideBytes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::uint64_t word;
      std::memcpy(&word, data + lane * sizeof(word), sizeof(word));
      lanes[lane] += word;
    }
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum += lane;
  return sum;
}

std::uint64_t SumBaseline(const std::byte* data, std::size_t strides) {
  return SumStrides(data, strides);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::uint64_t SumAvx2(const std::byte* data, std::size_t strides) {
  return SumStrides(data, strides);
}
[[gnu::target("avx512f")]] std::uint64_t SumAvx512(const std::byte* data, std::size_t strides) {
  return SumStrides(data, strides);
}
#endif

using SumFunction = std::uint64_t (*)(const std::byte*, std::size_t);

SumFunction ChooseSum() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return SumAvx512;
  if (__builtin_cpu_supports("avx2")) return SumAvx2;
#endif
  return SumBaseline;
}

}  // namespace

std::uint64_t ByteSum(std::span<const std::byte> bytes) {
  // Asked once; the answer does not change while the process runs.
  static const SumFunction sum_strides = ChooseSum();
  const std::size_t strides = bytes.size() / kStrideBytes;
  std::uint64_t sum = sum_strides(bytes.data(), strides);
  // The rest, word by word; the last word is filled up with zeros, so that the sum does not depend
  // on what lies behind the sample.
  for (std::size_t at = strides * kStrideBytes; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    const std::size_t rest = bytes.size() - at;
    std::memcpy(&word, bytes.data() + at, rest < sizeof(word) ? rest : sizeof(word));
    sum += word;
  }
  return sum;
}

void ByteSummer::Add(std::span<const std::byte> piece) {
  // A word that was begun by the piece before must be completed first, because the words of the sum
  // count from the sample's first byte.
  while (tail_bytes_ != 0 && !piece.empty()) {
    tail_[tail_bytes_++] = piece.front();
    piece = piece.subspan(1);
    if (tail_bytes_ == sizeof(tail_)) Flush();
  }
  const std::size_t whole = piece.size() / sizeof(tail_) * sizeof(tail_);
  sum_ += ByteSum(piece.first(whole));
  for (const std::byte byte : piece.subspan(whole)) tail_[tail_bytes_++] = byte;
}

std::uint64_t ByteSummer::Finish() {
  if (tail_bytes_ != 0) Flush();
  return sum_;
}

void ByteSummer::Flush() {
  sum_ += ByteSum({tail_, tail_bytes_});
  tail_bytes_ = 0;
}

}  // namespace forebay::bench
