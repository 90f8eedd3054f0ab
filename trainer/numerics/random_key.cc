// A seed is a checksum over everything that a draw depends on. Two ranks, two layouts or a
// repeated forward pass that draw for the same purpose therefore get the same numbers, and no
// generator has a state to save.
#include "trainer/numerics/random_key.h"

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "proto/contract/checksum.h"

namespace forebay::train {
namespace {

std::uint64_t KeyOf(const std::array<std::uint64_t, 4>& numbers, std::string_view name) {
  std::vector<char> bytes(sizeof(numbers) + name.size());
  std::memcpy(bytes.data(), numbers.data(), sizeof(numbers));
  name.copy(bytes.data() + sizeof(numbers), name.size());
  return Checksum(std::as_bytes(std::span(bytes)));
}

}  // namespace

std::uint64_t LayerSeed(std::uint64_t seed, std::uint64_t step, std::uint32_t micro_batch,
                        std::string_view layer) {
  // The first number tells the seeds of dropout from those of first weights, which have the same
  // names.
  return KeyOf({1, seed, step, micro_batch}, layer);
}

std::uint64_t ParameterSeed(std::uint64_t seed, std::string_view parameter) {
  return KeyOf({2, seed, 0, 0}, parameter);
}

}  // namespace forebay::train
