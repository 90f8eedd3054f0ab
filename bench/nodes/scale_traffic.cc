// Counts by walking: each step, each rank, each sample of its batch. A job of 16,384 nodes has a
// million samples in a step, so callers take some of the steps.
#include "bench/nodes/scale_traffic.h"

#include <algorithm>
#include <numeric>

#include "proto/contract/check.h"
#include "server/stage/extent_groups.h"
#include "server/tier/extent_key.h"

namespace forebay::bench {

std::vector<plan::Node> NodesOf(std::uint32_t count) {
  std::vector<plan::Node> nodes;
  for (std::uint32_t i = 0; i < count; ++i) {
    // Identities are hashed, so that consecutive ones are as good as any others.
    nodes.push_back({.rank = NodeRank(i), .weight = 1, .identity = 1'000'000 + i});
  }
  return nodes;
}

std::uint32_t Layout::OwnerOf(std::uint64_t sample) const {
  // A search, and not the catalog's own look-up, which may drop pages of a mapped catalog and read
  // them again: a job asks for a million samples in a step. A test compares both.
  const auto next = std::ranges::upper_bound(first_samples, sample);
  return shares[static_cast<std::size_t>(next - first_samples.begin()) - 1].owner;
}

std::uint64_t Layout::set_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

std::vector<std::uint64_t> Layout::BytesOfNodes(std::size_t node_count) const {
  std::vector<std::uint64_t> of_nodes(node_count);
  for (std::size_t i = 0; i < bytes.size(); ++i) of_nodes[shares[i].owner] += bytes[i];
  return of_nodes;
}

std::uint64_t Layout::group_count() const {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    // The units of a group follow one another.
    count += i == 0 || shares[i].key != shares[i - 1].key ? 1 : 0;
  }
  return count;
}

Layout LayoutOf(const catalog::Catalog& catalog, std::uint64_t sample_bytes,
                const plan::Membership& nodes) {
  // With several parts, a sample would lie in several extents.
  FOREBAY_CHECK(catalog.part_count() == 1);
  Layout layout{.first_samples = {},
                .bytes = {},
                .shares = stage::GroupShares(catalog, 0, nodes),
                .sample_count = catalog.sample_count(),
                .sample_bytes = sample_bytes};
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const catalog::ExtentInfo extent = catalog.extent(ExtentId(i));
    layout.first_samples.push_back(extent.first_sample.value());
    layout.bytes.push_back(extent.bytes);
  }
  return layout;
}

Layout LayoutOfShards(std::uint64_t sample_count, std::uint64_t sample_bytes,
                      std::uint64_t shard_count, const plan::Membership& nodes) {
  Layout layout{.first_samples = {},
                .bytes = {},
                .shares = {},
                .sample_count = sample_count,
                .sample_bytes = sample_bytes};
  for (std::uint64_t shard = 0; shard < shard_count; ++shard) {
    const std::uint64_t begin = sample_count / shard_count * shard;
    // The last shard has the samples that are left.
    const std::uint64_t end =
        shard + 1 == shard_count ? sample_count : begin + sample_count / shard_count;
    layout.first_samples.push_back(begin);
    layout.bytes.push_back((end - begin) * sample_bytes);
  }
  layout.shares = stage::ScanGroupShares(tier::DatasetHash("scale"), layout.bytes, nodes);
  return layout;
}

Traffic TrafficOf(const Layout& layout, const Order& order, const StepPlan& plan,
                  std::uint64_t first_step, std::uint64_t steps) {
  const std::uint64_t ranks = plan.ranks();
  Traffic traffic{.received_bytes = std::vector<double>(ranks),
                  .sent_bytes = std::vector<double>(ranks),
                  .askers = std::vector<std::uint32_t>(ranks)};
  const auto sample_bytes = static_cast<double>(layout.sample_bytes);
  std::vector<std::uint64_t> samples;
  std::vector<std::uint32_t> owners;
  std::uint64_t asked = 0;
  for (std::uint64_t step = first_step; step < first_step + steps; ++step) {
    std::vector<std::uint32_t> askers(ranks);
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      const StepSlice slice = plan.RankSlice(StepId(step), rank).value();
      samples.resize(slice.count);
      // All at once, as a daemon plans a batch.
      order.Forward(Position(slice.first), samples);
      owners.clear();
      for (const std::uint64_t sample : samples) {
        const std::uint32_t owner = layout.OwnerOf(sample);
        // Its own samples, a node takes from its tiers.
        if (owner == rank) continue;
        traffic.received_bytes[rank] += sample_bytes;
        traffic.sent_bytes[owner] += sample_bytes;
        owners.push_back(owner);
      }
      // However many samples of the batch an owner has, it is asked once: a request names many.
      std::ranges::sort(owners);
      const auto repeated = std::ranges::unique(owners);
      owners.erase(repeated.begin(), repeated.end());
      for (const std::uint32_t owner : owners) ++askers[owner];
      asked += owners.size();
    }
    // The worst step of each node counts, because an owner that is asked by too many refuses some.
    for (std::uint64_t node = 0; node < ranks; ++node) {
      traffic.askers[node] = std::max(traffic.askers[node], askers[node]);
    }
  }
  traffic.mean_askers = static_cast<double>(asked) / static_cast<double>(steps * ranks);
  return traffic;
}

Recovery RecoveryOf(const Layout& layout, std::span<const plan::Node> nodes,
                    std::span<const std::uint32_t> lost) {
  const plan::OwnerTree tree(nodes);
  std::vector<bool> is_lost(nodes.size());
  for (const std::uint32_t node : lost) is_lost[node] = true;
  Recovery recovery{.bytes_of_nodes = std::vector<std::uint64_t>(nodes.size())};
  std::size_t substitute = 0;
  for (std::size_t i = 0; i < layout.shares.size(); ++i) {
    const plan::GroupShare& share = layout.shares[i];
    if (!is_lost[share.owner]) continue;
    // All units of a group go to one substitute, which is found once. A substitute that is lost,
    // too, is passed over, as Membership does.
    if (i == 0 || share.key != layout.shares[i - 1].key) {
      plan::OwnerTree::Ranking ranking = tree.RankingOf(share.key);
      do {
        const auto next = ranking.Next();
        FOREBAY_CHECK(next.has_value());  // some node is not lost
        substitute = *next;
      } while (is_lost[substitute]);
      ++recovery.groups;
    }
    recovery.bytes += layout.bytes[i];
    recovery.bytes_of_nodes[substitute] += layout.bytes[i];
  }
  return recovery;
}

}  // namespace forebay::bench
