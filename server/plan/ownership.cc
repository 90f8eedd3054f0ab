// The tree is a trie over the digits of the nodes' hashed identities. From the root down, each fork
// chooses one of at most 16 branches by rendezvous hashing, in proportion to the weights of the
// nodes below, so that the choice among 16,384 nodes compares about 60 scores and not 16,384. A
// branch's score depends on its digits and its weight only; so in a job with another list of nodes,
// only those groups move whose path leads past the change.
#include "server/plan/ownership.h"

#include <algorithm>
#include <array>
#include <bit>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"

namespace forebay::plan {
namespace {

constexpr std::uint32_t kDigitBits = 4;
constexpr std::uint32_t kDepthMax = 64 / kDigitBits;
// Draws of a ranking before it falls back to a list of the nodes that were not drawn.
constexpr std::uint32_t kDrawsMax = 64;

// The upper 64 bits of the product.
constexpr std::uint64_t HighHalf(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_high = a >> 32, a_low = a & 0xFFFF'FFFF;
  const std::uint64_t b_high = b >> 32, b_low = b & 0xFFFF'FFFF;
  const std::uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  return a_high * b_high + (middle >> 32) +
         ((a_low * b_high + (middle & 0xFFFF'FFFF)) >> 32);
}

// Binary logarithms of 1, 1 + 1/256 ... 2 with 32 fractional bits. Squaring a number doubles its
// logarithm, so each squaring yields one bit. Computed at compile time without floating point,
// because the last bit of a library's logarithm differs between libraries.
constexpr std::uint32_t kLogSteps = 256;
constexpr auto kLogs = [] {
  std::array<std::uint64_t, kLogSteps + 1> logs{};
  for (std::uint64_t step = 0; step < kLogSteps; ++step) {
    std::uint64_t x = (kLogSteps + step) << 55;  // in units of 2^-63
    for (int bit = 0; bit < 32; ++bit) {
      x = HighHalf(x, x);
      logs[step] = logs[step] << 1 | x >> 63;
      if (x >> 63 == 0) x <<= 1;
    }
  }
  logs[kLogSteps] = std::uint64_t{1} << 32;
  return logs;
}();

// -log2(word / 2^64) with 32 fractional bits. For a random word this is exponentially distributed.
std::uint64_t MinusLog(std::uint64_t word) {
  word |= 1;
  const int zeros = std::countl_zero(word);
  const std::uint64_t x = word << zeros << 1;  // the fraction of a number from 1 to 2
  const std::uint64_t step = x >> 56;
  const std::uint64_t within = x >> 24 & 0xFFFF'FFFF;  // of the step, 32 bits
  const std::uint64_t log =
      kLogs[step] + ((kLogs[step + 1] - kLogs[step]) * within >> 32);
  return (static_cast<std::uint64_t>(zeros + 1) << 32) - log;
}

}  // namespace

std::uint64_t GroupKey(std::uint64_t dataset, std::uint64_t group) {
  // Consecutive groups get unrelated keys. The + 1 keeps group 0 from having the data set's hash.
  return Mix64(dataset + kGolden64 * (group + 1));
}

OwnerTree::OwnerTree(std::span<const Node> nodes) {
  FOREBAY_CHECK(!nodes.empty() && nodes.size() <= limits::kNodeCountMax);
  std::vector<Named> named;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    hashes_.push_back(Mix64(nodes[i].identity + kGolden64));
    named.push_back({.hash = hashes_.back(),
                     .weight = std::clamp(nodes[i].weight, 1U, limits::kNodeWeightMax),
                     .index = i});
  }
  std::ranges::sort(named, {}, &Named::hash);
  // Mix64 is a bijection, so equal hashes are equal identities.
  FOREBAY_CHECK(std::ranges::adjacent_find(named, {}, &Named::hash) == named.end());
  root_ = Grow(named, 0);
}

// Makes the fork of nodes that agree in their first `depth` digits; they are sorted. Returns its
// index.
std::uint32_t OwnerTree::Grow(std::span<const Named> nodes, std::uint32_t depth) {
  FOREBAY_CHECK(depth < kDepthMax);
  const std::uint32_t shift = 64 - kDigitBits * (depth + 1);
  // A one before the digits makes the salts of different depths differ. The last digit leaves no
  // room for it.
  const std::uint64_t lead = shift == 0 ? 0 : std::uint64_t{1} << (64 - shift);
  std::vector<Branch> branches;
  while (!nodes.empty()) {
    const std::uint64_t digits = nodes.front().hash >> shift;
    const auto end = std::ranges::find_if(
        nodes, [&](const Named& node) { return node.hash >> shift != digits; });
    const std::span<const Named> below = nodes.first(static_cast<std::size_t>(end - nodes.begin()));
    Branch branch{.salt = Mix64(digits | lead), .is_node = below.size() == 1};
    for (const Named& node : below) branch.weight += node.weight;
    branch.below = branch.is_node ? below.front().index : Grow(below, depth + 1);
    branches.push_back(branch);
    nodes = nodes.subspan(below.size());
  }
  // The branches of one fork lie side by side; those below were added first.
  forks_.push_back({.begin = static_cast<std::uint32_t>(branches_.size()),
                    .end = static_cast<std::uint32_t>(branches_.size() + branches.size())});
  branches_.insert(branches_.end(), branches.begin(), branches.end());
  return static_cast<std::uint32_t>(forks_.size() - 1);
}

// A branch of weight w waits for an exponentially distributed time of rate w, and the first to come
// is chosen: each with probability w / sum of weights. Attempts are independent of each other.
std::size_t OwnerTree::Draw(std::uint64_t key, std::uint32_t attempt) const {
  const std::uint64_t seed = attempt == 0 ? key : Mix64(key + kGolden64 * attempt);
  std::uint32_t fork = root_;
  for (;;) {
    const Branch* best = nullptr;
    std::uint64_t best_wait = 0;
    for (std::uint32_t i = forks_[fork].begin; i < forks_[fork].end; ++i) {
      const Branch& branch = branches_[i];
      const std::uint64_t wait = MinusLog(Mix64(seed ^ branch.salt));
      // wait / weight < best_wait / best->weight without a division. A wait has at most 39 bits,
      // and the weight of all nodes has 22. Of equal ones, the smaller digits win.
      if (best == nullptr || wait * best->weight < best_wait * branch.weight) {
        best = &branch;
        best_wait = wait;
      }
    }
    if (best->is_node) return best->below;
    fork = best->below;
  }
}

std::optional<std::size_t> OwnerTree::Ranking::Next() {
  const auto is_named = [this](std::size_t node) { return std::ranges::count(named_, node) != 0; };
  while (draws_ < kDrawsMax && named_.size() < tree_.hashes_.size()) {
    const std::size_t node = tree_.Draw(key_, draws_++);
    if (is_named(node)) continue;
    named_.push_back(node);
    return node;
  }
  // Few nodes are left, or most are not alive: the rest comes in an order of its own, without
  // regard to weights.
  if (draws_ == kDrawsMax) {
    ++draws_;
    for (std::size_t node = 0; node < tree_.hashes_.size(); ++node) {
      if (!is_named(node)) rest_.push_back(node);
    }
    std::ranges::sort(rest_, {}, [this](std::size_t node) {
      return Mix64(key_ ^ tree_.hashes_[node]);
    });
  }
  if (rest_.empty()) return std::nullopt;
  const std::size_t node = rest_.back();
  rest_.pop_back();
  return node;
}

}  // namespace forebay::plan
