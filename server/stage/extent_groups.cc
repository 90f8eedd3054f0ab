// One walk over the extents of a catalog. An extent belongs to the range of its object in which it
// begins, unless it continues a chain: then it belongs to the group of the chain's first extent.
#include "server/stage/extent_groups.h"

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

std::vector<std::uint64_t> GroupKeys(const catalog::Catalog& catalog, std::uint64_t group_bytes) {
  const std::uint64_t dataset = tier::DatasetHash(catalog.name());
  // Where the extents of a scanned object begin is known only after the scan, and who scans it must
  // be known before.
  const bool is_scanned = !catalog::BuildsFromMetadata(catalog.format());
  std::vector<std::uint64_t> keys;
  keys.reserve(catalog.extent_count());
  catalog::ExtentInfo before;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const catalog::ExtentInfo extent = catalog.extent(ExtentId(i));
    const std::uint64_t range = is_scanned ? 0 : extent.object_offset / group_bytes;
    keys.push_back(i > 0 && ContinuesChain(before, extent)
                       ? keys.back()
                       : GroupKeyOf(dataset, extent.first_object, range));
    before = extent;
  }
  return keys;
}

}  // namespace forebay::stage
