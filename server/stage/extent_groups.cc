// One walk over the extents of a catalog. An extent belongs to the range of its object in which it
// begins, unless it continues a chain: then it belongs to the group of the chain's first extent.
#include "server/stage/extent_groups.h"

#include <algorithm>

#include "proto/contract/limits.h"
#include "server/catalog/dataset_source.h"
#include "server/plan/ownership.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {
namespace {

// Whether `extent` and the one before it hold parts of one sample and nothing else. A row that is
// split between two groups would take a copy of an extent from one owner to the other.
bool ContinuesChain(const catalog::ExtentInfo& before, const catalog::ExtentInfo& extent) {
  return extent.part == before.part && extent.first_object == before.first_object &&
         extent.first_sample == before.first_sample && extent.sample_count == 1 &&
         before.sample_count == 1;
}

}  // namespace

std::uint64_t GroupKeyOf(std::uint64_t dataset, ObjectId object, std::uint64_t range) {
  // Objects have numbers of 32 bits. A range has fewer in all objects of up to 4 EiB, so different
  // groups have different numbers.
  return plan::GroupKey(dataset, (std::uint64_t{object.value()} << 32) + range);
}

std::vector<std::uint64_t> RawGroupKeys(const catalog::Catalog& catalog,
                                        std::uint64_t range_bytes) {
  const std::uint64_t dataset = tier::DatasetHash(catalog.name());
  // Where the extents of a scanned object begin is known only after the scan, and who scans it must
  // be known before.
  const bool is_scanned = !catalog::BuildsFromMetadata(catalog.format());
  std::vector<std::uint64_t> keys;
  keys.reserve(catalog.extent_count());
  catalog::ExtentInfo before;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const catalog::ExtentInfo extent = catalog.extent(ExtentId(i));
    const std::uint64_t range = is_scanned ? 0 : extent.object_offset / range_bytes;
    keys.push_back(i > 0 && ContinuesChain(before, extent)
                       ? keys.back()
                       : GroupKeyOf(dataset, extent.first_object, range));
    before = extent;
  }
  return keys;
}

std::uint64_t RangeBytes(const catalog::Catalog& catalog, std::size_t node_count) {
  // A node gets up to one group more than its share, so a node needs many of them. Up to 256 nodes
  // the number of groups does not depend on theirs, so that most groups stay where they are when
  // the next job has another number of nodes.
  constexpr std::uint64_t kGroupsMin = 1 << 14;
  constexpr std::uint64_t kGroupsOfNodeMin = 64;
  const std::uint64_t wanted = std::max(kGroupsMin, kGroupsOfNodeMin * node_count);
  return std::clamp<std::uint64_t>(catalog.total_bytes() / wanted, 1, limits::kGroupBytes);
}

std::vector<plan::GroupShare> ScanGroupShares(std::uint64_t dataset,
                                              std::span<const std::uint64_t> object_bytes,
                                              const plan::Membership& nodes) {
  std::vector<plan::GroupSize> groups;
  groups.reserve(object_bytes.size());
  for (std::uint32_t i = 0; i < object_bytes.size(); ++i) {
    groups.push_back({.key = GroupKeyOf(dataset, ObjectId(i)), .bytes = object_bytes[i]});
  }
  return nodes.BalancedShares(groups);
}

std::vector<plan::GroupShare> GroupShares(const catalog::Catalog& catalog,
                                          std::uint64_t range_bytes,
                                          const plan::Membership& nodes) {
  std::vector<plan::GroupShare> shares;
  shares.reserve(catalog.extent_count());
  if (!catalog::BuildsFromMetadata(catalog.format())) {
    // The same groups as before the scan, those of objects without extents included.
    std::vector<std::uint64_t> object_bytes(catalog.object_count());
    for (std::uint32_t i = 0; i < object_bytes.size(); ++i) {
      object_bytes[i] = catalog.object(ObjectId(i)).bytes;
    }
    const std::vector<plan::GroupShare> of_objects =
        ScanGroupShares(tier::DatasetHash(catalog.name()), object_bytes, nodes);
    for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
      shares.push_back(of_objects[catalog.extent(ExtentId(i)).first_object.value()]);
    }
    return shares;
  }
  const std::vector<std::uint64_t> keys = RawGroupKeys(
      catalog, range_bytes == 0 ? RangeBytes(catalog, nodes.nodes().size()) : range_bytes);
  // The extents of a group follow one another, so there is no need for a table of keys.
  const auto begins_group = [&](std::uint32_t i) { return i == 0 || keys[i] != keys[i - 1]; };
  std::vector<plan::GroupSize> groups;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const catalog::ExtentInfo extent = catalog.extent(ExtentId(i));
    if (begins_group(i)) {
      groups.push_back({.key = keys[i],
                        .bytes = 0,
                        // Whole objects are staged while others are still being listed.
                        .keeps_key = catalog.object(extent.first_object).bytes <= extent.bytes});
    }
    groups.back().bytes += extent.bytes;
  }
  const std::vector<plan::GroupShare> balanced = nodes.BalancedShares(groups);
  std::size_t begun = 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    begun += begins_group(i) ? 1 : 0;
    shares.push_back(balanced[begun - 1]);
  }
  return shares;
}

}  // namespace forebay::stage
