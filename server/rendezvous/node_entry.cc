// Checks and weights of a list of nodes. A job may have tens of thousands, so each check is one
// pass or one sort. Nodes are compared with that of rank 0, which makes the message the same on
// every node.
#include "server/rendezvous/node_entry.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"
#include "proto/contract/printable.h"

namespace forebay::rendezvous {
namespace {

// Both nodes are named in full: a user has to find the two machines.
Error Clash(const NodeEntry& one, const NodeEntry& other, std::string_view why) {
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("nodes {} and {} {}", one.Text(), other.Text(), why));
}

// Finds two nodes that have the same key, which must be their own. An empty key counts as none.
template <typename KeyOf>
Status CheckDistinct(std::span<const NodeEntry> nodes, KeyOf key_of, std::string_view why) {
  // In the order of `nodes`, so the message does not depend on the order of the table.
  std::unordered_map<std::string, const NodeEntry*> owners;
  owners.reserve(nodes.size());
  for (const NodeEntry& node : nodes) {
    const std::string key = key_of(node);
    if (key.empty()) continue;
    const auto [owner, is_new] = owners.try_emplace(key, &node);
    if (!is_new) return Clash(*owner->second, node, why);
  }
  return {};
}

// Returns a text that differs between the nodes of a job. Hashes could be equal by chance.
std::string KeyOf(const NodeIdentity& identity) {
  return identity.host + '\n' + identity.ssd_directory;
}

constexpr std::string_view kSameNode =
    "are the same node: give each daemon of a host a tier.ssd.directory of its own";
constexpr std::string_view kSameAddress = "listen on the same address";
constexpr std::string_view kOtherJobs = "belong to different jobs";

// Compares position by position. Daemons of one version have the same names in the same order, so
// another name or number means another version.
Status CheckAgreed(const NodeEntry& first, const NodeEntry& node) {
  if (node.agreed == first.agreed) return {};
  if (node.agreed.size() != first.agreed.size()) {
    return Clash(first, node, "compare different values: their forebayd are of two versions");
  }
  const auto differ = std::ranges::mismatch(first.agreed, node.agreed);
  if (differ.in1->name != differ.in2->name) {
    return Clash(first, node, fmt::format("compare different values, {} and {}: their forebayd are "
                                          "of two versions",
                                          Quoted(differ.in1->name), Quoted(differ.in2->name)));
  }
  return Clash(first, node, fmt::format("differ in {}: {} and {}", PrintableLine(differ.in1->name),
                                        Quoted(differ.in1->value), Quoted(differ.in2->value)));
}

}  // namespace

std::string NodeEntry::Text() const {
  return fmt::format("{} (rank {})", identity.Text(), rank.value());
}

Status CheckNodeList(std::span<const NodeEntry> nodes, std::uint32_t node_count) {
  // Duplicates first. A rank that occurs twice usually leaves another one out, and to name the two
  // nodes helps more than to name the rank that is missing.
  FOREBAY_TRY(CheckDistinct(
      nodes, [](const NodeEntry& node) { return fmt::format("{}", node.rank.value()); },
      "have the same rank: the daemons were started with wrong ranks, or a daemon of an earlier "
      "launch still runs"));
  for (const NodeEntry& node : nodes) {
    if (node.rank.value() < node_count) continue;
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("node {} has no rank of a job with {} nodes", node.Text(),
                             node_count));
  }
  if (nodes.size() != node_count) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the job has {} nodes, and these ranks are missing: {}", node_count,
                             MissingRanks(nodes, node_count)));
  }
  FOREBAY_TRY(CheckDistinct(
      nodes, [](const NodeEntry& node) { return KeyOf(node.identity); }, kSameNode));
  FOREBAY_TRY(CheckDistinct(
      nodes, [](const NodeEntry& node) { return KeyOf(node.place); },
      "have the same place: the list of nodes is wrong"));
  // Two network namespaces may have the same address, but then neither reaches the other.
  FOREBAY_TRY(CheckDistinct(
      nodes,
      [](const NodeEntry& node) { return node.is_free() ? std::string() : node.address.Text(); },
      kSameAddress));
  for (const NodeEntry& node : nodes) {
    if (node.identity.job != nodes.front().identity.job) {
      return Clash(nodes.front(), node, kOtherJobs);
    }
    FOREBAY_TRY(CheckAgreed(nodes.front(), node));
  }
  return {};
}

Result<std::vector<NodeEntry>> WithFreePlaces(std::vector<NodeEntry> nodes, std::uint32_t count) {
  FOREBAY_CHECK(!nodes.empty());
  if (nodes.size() > limits::kNodeCountMax || count > limits::kNodeCountMax - nodes.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} nodes and {} free places are more than kNodeCountMax ({})",
                             nodes.size(), count, limits::kNodeCountMax));
  }
  const NodeEntry first = nodes.front();
  const std::uint64_t smallest =
      std::ranges::min_element(nodes, {}, &NodeEntry::capacity_bytes)->capacity_bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto rank = static_cast<std::uint32_t>(nodes.size());
    // The blank: no host has such a name.
    const NodeIdentity place = {.job = first.identity.job, .host = fmt::format("place {}", rank)};
    nodes.push_back({.identity = place,
                     .place = place,
                     .rank = NodeRank(rank),
                     .address = {.host = "0.0.0.0"},
                     .capacity_bytes = smallest,
                     .nonce = Mix64(first.nonce + kGolden64 * rank),
                     .agreed = first.agreed});
  }
  return nodes;
}

NodeEntry TakePlace(const NodeEntry& place, const NodeEntry& node) {
  NodeEntry taken = place;
  taken.identity = node.identity;
  taken.address = node.address;
  return taken;
}

Status CheckMayTake(std::span<const NodeEntry> nodes, const NodeEntry& taken) {
  if (taken.rank.value() >= nodes.size()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("node {} takes a place that a job of {} places does not have",
                             taken.Text(), nodes.size()));
  }
  const NodeEntry& place = nodes[taken.rank.value()];
  if (taken.identity.job != place.identity.job) return Clash(place, taken, kOtherJobs);
  if (taken != TakePlace(place, taken)) {
    return Clash(place, taken, "know different places of this rank: they have the lists of nodes "
                               "of two launches");
  }
  if (taken.is_free()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("node {} takes a place without an address", taken.Text()));
  }
  for (const NodeEntry& other : nodes) {
    if (other.rank == taken.rank) continue;
    if (KeyOf(other.identity) == KeyOf(taken.identity)) return Clash(other, taken, kSameNode);
    if (other.address == taken.address) return Clash(other, taken, kSameAddress);
  }
  return {};
}

Status CheckRoom(const NodeEntry& place, const NodeEntry& node) {
  FOREBAY_TRY(CheckAgreed(place, node));
  constexpr std::uint64_t kTolerance = 32;  // nodes of one type differ by less than one part in 32
  if (node.capacity_bytes >= place.capacity_bytes - place.capacity_bytes / kTolerance) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("node {} has tiers of {} bytes, and the share of place {} is that of "
                           "tiers of {} bytes: set tier.ram.capacity or tier.ssd.capacity to more, "
                           "or take a place with a smaller share",
                           node.identity.Text(), node.capacity_bytes, place.Text(),
                           place.capacity_bytes));
}

Result<NodeRank> FindNode(std::span<const NodeEntry> nodes, std::string_view name) {
  std::vector<NodeRank> found;
  for (const NodeEntry& node : nodes) {
    const bool is_address = !node.is_free() && name == node.address.Text();
    const bool is_it = is_address || name == fmt::to_string(node.rank.value()) ||
                       name == node.identity.host || name == node.identity.Text() ||
                       name == node.Text();
    if (is_it) found.push_back(node.rank);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("no node of the job is called '{}': give a rank, an address or a "
                             "name that 'forebay status --nodes' shows",
                             name));
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} nodes of the job are called '{}', with the ranks {} and {} among "
                           "them: give one rank",
                           found.size(), name, found[0].value(), found[1].value()));
}

// A job that half its nodes do not join would give a message of thousands of ranks, so runs are
// joined, and the text ends after eight of them.
std::string MissingRanks(std::span<const NodeEntry> nodes, std::uint32_t node_count) {
  constexpr int kPartsMax = 8;
  std::string text;
  int parts = 0;
  std::uint32_t next = 0;  // the smallest rank that may be missing
  const auto add = [&](std::uint32_t end) {
    // [next, end) is missing.
    if (next >= end || parts > kPartsMax) return;
    if (!text.empty()) text += ", ";
    if (++parts > kPartsMax) {
      text += "...";
    } else if (end - next == 1) {
      text += fmt::format("{}", next);
    } else {
      text += fmt::format("{} to {}", next, end - 1);
    }
  };
  for (const NodeEntry& node : nodes) {
    const std::uint32_t rank = std::min(node.rank.value(), node_count);  // it may be too large
    add(rank);
    next = std::max(next, rank + 1);
  }
  add(node_count);
  return text;
}

std::vector<std::uint32_t> NodeWeights(std::span<const NodeEntry> nodes) {
  std::uint64_t largest = 0;
  for (const NodeEntry& node : nodes) largest = std::max(largest, node.capacity_bytes);
  // Rounded up, so that no quotient exceeds the largest weight.
  const std::uint64_t unit =
      std::max<std::uint64_t>(1, largest / limits::kNodeWeightMax +
                                     (largest % limits::kNodeWeightMax == 0 ? 0 : 1));
  std::vector<std::uint32_t> weights;
  for (const NodeEntry& node : nodes) {
    // Rounded to the nearest, without a sum that could overflow.
    const std::uint64_t rounded =
        node.capacity_bytes / unit + (node.capacity_bytes % unit >= unit - unit / 2 ? 1 : 0);
    // A node without tiers still gets a small share, which it supplies from the GFS.
    weights.push_back(static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(rounded, 1, limits::kNodeWeightMax)));
  }
  return weights;
}

}  // namespace forebay::rendezvous
