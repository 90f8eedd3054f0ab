// Measures how long a node takes to find out what it owns: its share of the groups of a large data
// set (BalancedShares, as a daemon calls it when the catalog is complete), and the owner of one
// group (OwnerTree). Both are pure functions, so one core and no other node is needed.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "server/plan/ownership.h"
#include "server/plan/shares.h"

namespace forebay::plan {
namespace {

constexpr std::uint64_t kDataset = 42;
constexpr std::uint64_t kGroupBytes = 1 << 20;

std::vector<Node> NodesOf(std::int64_t count) {
  std::vector<Node> nodes;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    nodes.push_back({.rank = NodeRank(i), .weight = 1, .identity = 1'000'000 + i});
  }
  return nodes;
}

// The groups that node 0 owns, from nothing but the list of nodes and the number of groups.
void BM_OwnShare(benchmark::State& state) {
  const std::vector<Node> nodes = NodesOf(state.range(0));
  const auto group_count = static_cast<std::uint64_t>(state.range(1));
  std::size_t owned = 0;
  for (auto _ : state) {
    const OwnerTree tree(nodes);
    std::vector<GroupSize> groups;
    groups.reserve(group_count);
    for (std::uint64_t i = 0; i < group_count; ++i) {
      groups.push_back({.key = GroupKey(kDataset, i), .bytes = kGroupBytes});
    }
    owned = 0;
    for (const GroupShare& share : BalancedShares(tree, nodes, groups)) {
      owned += share.owner == 0 ? 1 : 0;
    }
    benchmark::DoNotOptimize(owned);
  }
  state.counters["owned"] = static_cast<double>(owned);
}
BENCHMARK(BM_OwnShare)
    ->ArgNames({"nodes", "groups"})
    ->Args({16'384, 1 << 24})
    ->Unit(benchmark::kSecond);

// Each call needs the result of the one before it, so this is the latency of a call.
void BM_OwnerOf(benchmark::State& state) {
  const OwnerTree tree(NodesOf(state.range(0)));
  std::uint64_t group = 0;
  for (auto _ : state) {
    group += 1 + (tree.OwnerOf(GroupKey(kDataset, group)) & 1);
    benchmark::DoNotOptimize(group);
  }
}
BENCHMARK(BM_OwnerOf)->ArgName("nodes")->Arg(16)->Arg(1024)->Arg(16'384);

}  // namespace
}  // namespace forebay::plan
