// Groups of extents: one node of the job reads all extents of a group from the GFS, so that few
// nodes open an object. An object that must be scanned (tar, lines of text) is one group. Of other
// objects, a group is what begins in a range of a large object, or the small objects
// that one extent holds. The extents of a chain are in the same group.
//
// Every node computes the same groups, whatever it has read so far: a group depends on the data
// set's name, on the number of an object, and on an offset that is known from metadata. Then the
// groups of the whole catalog are divided evenly among the nodes (plan::BalancedShares), except for
// those that a node stages before its catalog is complete: they keep the key that they had then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "server/catalog/catalog.h"
#include "server/plan/membership.h"

namespace forebay::stage {

// The key of a group, for plan::Membership. `object` is the first object of the group, and `range`
// counts the ranges of a large object; it is 0 for an object that must be scanned and for small
// objects. So these keys are known before there is a catalog. `dataset`: a tier::DatasetHash.
std::uint64_t GroupKeyOf(std::uint64_t dataset, ObjectId object, std::uint64_t range = 0);

// Returns the key of each extent's group, by extent, before the groups are divided evenly. Ranges
// of large objects have `range_bytes`, which is at least 1.
std::vector<std::uint64_t> RawGroupKeys(const catalog::Catalog& catalog,
                                        std::uint64_t range_bytes);

// A size of ranges for which a data set has enough groups to be divided evenly, and no more than
// necessary: a 16,384th of its bytes or, in a job of more than 256 nodes, a 64th of the share of a
// node; at most limits::kGroupBytes.
std::uint64_t RangeBytes(const catalog::Catalog& catalog, std::size_t node_count);

// Returns the share of each object's group, by object, for the nodes of a job, in a data set whose
// objects are scanned. It needs no catalog: `object_bytes` are the sizes of the objects.
std::vector<plan::GroupShare> ScanGroupShares(std::uint64_t dataset,
                                              std::span<const std::uint64_t> object_bytes,
                                              const plan::Membership& nodes);

// Returns the share of each extent's group, by extent, for the nodes of a job. `range_bytes`: 0 for
// RangeBytes.
std::vector<plan::GroupShare> GroupShares(const catalog::Catalog& catalog,
                                          std::uint64_t range_bytes,
                                          const plan::Membership& nodes);

}  // namespace forebay::stage
