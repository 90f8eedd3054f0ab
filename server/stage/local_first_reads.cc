// The other node may be ahead of this one, which then has no catalog to compare with. Its reads are
// kept all the same, because it waits for the answer: an extent's identity covers the paths, sizes
// and times of its objects, so reads of other objects are never compared with.
#include "server/stage/local_first_reads.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stage/local_extents.h"

namespace forebay::stage {
namespace {

// The numbers come from another node. With a catalog, at most one read of each extent passes, which
// bounds the memory.
Status CheckReads(const Dataset& dataset, const catalog::Catalog& catalog,
                  std::span<const FirstRead> reads) {
  // Keys of a packed form belong to compressed images; first reads are those of raw ones.
  const bool has_raw_keys = dataset.form() == nullptr;
  for (const FirstRead& read : reads) {
    const ExtentId extent = read.key.extent;
    if (extent.value() >= catalog.extent_count()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("data set '{}' has no extent {}", dataset.name(), extent.value()));
    }
    const bool is_ours = has_raw_keys ? dataset.ExtentOf(read.key).has_value()
                                      : read.key == tier::KeyOf(catalog, extent);
    if (is_ours) continue;
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the objects of extent {} of data set '{}' have other sizes or "
                             "modification times here; the objects must not change during a job",
                             extent.value(), dataset.name()));
  }
  return {};
}

}  // namespace

Result<std::vector<std::uint32_t>> LocalFirstReads::Keep(Dataset& dataset,
                                                         std::uint64_t fingerprint, NodeRank from,
                                                         std::span<const FirstRead> reads) {
  FirstReads& known = dataset.first_reads();
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  if (catalog != nullptr) {
    if (fingerprint != 0) FOREBAY_TRY(CheckFingerprint(dataset, fingerprint));
    FOREBAY_TRY(CheckReads(dataset, *catalog, reads));
  } else if (known.count() + reads.size() > limits::kFirstReadsBeforeCatalogMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("data set '{}' has no catalog yet, and keeps at most {} checksums of "
                             "first reads until then",
                             dataset.name(), limits::kFirstReadsBeforeCatalogMax));
  }
  // Before the answer, because a first read that an earlier daemon of this node has saved counts.
  stager_.OpenFirstReads(dataset);
  std::vector<std::uint32_t> differing = known.KeepOfOther(reads);
  if (!differing.empty()) {
    log::Warn("data set '{}': node {} has read {} extents whose bytes are not those of the first "
              "read that node {} (this one) knows, although size and modification time are the "
              "same; it does not serve them; the first of them is extent {}",
              dataset.name(), from.value(), differing.size(), self_.value(),
              reads[differing.front()].key.extent.value());
  }
  return differing;
}

}  // namespace forebay::stage
