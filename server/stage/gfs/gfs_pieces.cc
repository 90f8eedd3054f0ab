// An extent that is described has a ResidentExtent of tier kGfs: it holds no bytes, but checksums
// and a PieceSource, which reads samples through GfsReader. These are kept in a list by last use,
// bounded by the memory of their checksums.
#include "server/stage/gfs/gfs_pieces.h"

#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stage/extent_loader.h"

namespace forebay::stage {
namespace {

// Memory that a described extent takes. The constant is about what one without pieces takes.
std::uint64_t KeptBytes(const tier::ResidentExtent& extent) {
  return 256 + extent.checksums.pieces.size() * sizeof(std::uint64_t);
}

}  // namespace

// Reads pieces of the extents of one data set.
class GfsPieces::Source final : public tier::PieceSource {
 public:
  Source(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog, GfsReader& gfs,
         RequestGate& gate)
      : dataset_(dataset), catalog_(std::move(catalog)), gfs_(gfs), gate_(gate) {}

  Status Read(io::IoQueue& queue, std::span<const tier::SourceRead> reads) const override {
    std::uint64_t bytes = 0;
    for (const tier::SourceRead& read : reads) bytes += read.memory.size();
    if (dataset_.CountPieces(reads.size(), bytes)) {
      log::Warn("data set '{}': some of its extents are on no tier; their samples are read from "
                "the GFS one by one, which is slow; raise tier.ram.capacity or "
                "tier.ssd.capacity, or replace an SSD that has failed",
                dataset_.name());
    }
    // A reader waits for these pieces, so they go before all background reads.
    const Priority priority(gate_.NextPriority());
    return gfs_.ReadPieces(queue, dataset_, *catalog_, reads, priority);
  }

 private:
  Dataset& dataset_;
  const std::shared_ptr<const catalog::Catalog> catalog_;
  GfsReader& gfs_;
  RequestGate& gate_;
};

tier::ExtentRef GfsPieces::Find(const tier::ExtentKey& key) {
  const MutexLock lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return found->second.extent;
}

tier::ExtentRef GfsPieces::FindReadable(const tier::ExtentKey& key) {
  const Dataset* dataset = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto found = known_.find(key);
    if (found == known_.end()) return nullptr;
    dataset = found->second.dataset;
  }
  // Asked without the lock, which every reader takes. If the extent is evicted meanwhile, Find
  // returns null, as for one that was never described.
  const std::optional<ExtentId> extent = dataset->ExtentOf(key);
  if (extent && gfs_.IsBlocked(*dataset, *dataset->catalog(), *extent)) return nullptr;
  return Find(key);
}

Status GfsPieces::Describe(Dataset& dataset,
                           const std::shared_ptr<const catalog::Catalog>& catalog,
                           ExtentId extent, const Priority& priority, io::IoQueue& queue) {
  const tier::ExtentKey key = tier::KeyOf(*catalog, extent);
  const std::uint32_t successors = dataset.version().successors();  // before the read
  // The image lies outside the arena, so few extents are described at once. The group is that of
  // the first object, which is enough to lend this place if the GFS does not answer.
  const RequestGate::Permit permit = describing_.Acquire(
      priority, GroupOf(dataset, catalog->object(catalog->extent(extent).first_object).path));
  // Releases the permit on every return.
  const auto leave = [this, permit](void*) { describing_.Release(permit); };
  const std::unique_ptr<void, decltype(leave)> place(this, leave);
  std::vector<catalog::Range> pieces;
  FOREBAY_TRY(catalog->Pieces(extent, pieces));
  std::vector<std::byte> image(catalog->extent(extent).bytes);
  const auto read = [&](std::span<std::byte> bytes, bool past_caches) {
    return gfs_.ReadImage(queue, dataset, *catalog, extent, priority, bytes, past_caches);
  };
  FOREBAY_ASSIGN(
      tier::ExtentChecksums checksums,
      ReadExtent(dataset,
                 {.key = key,
                  .pieces = pieces,
                  .objects = NameObjects(*catalog, extent),
                  .group_key = dataset.group_key(extent)},
                 image, read));
  auto described = std::make_shared<tier::ResidentExtent>();
  described->key = key;
  described->tier = tier::TierKind::kGfs;
  described->image_bytes = image.size();
  described->checksums = std::move(checksums);
  // As for an extent that is published on a tier: a rebuild forgets the extents that are described,
  // and either waits for this one first, or this one is not kept.
  const DatasetVersion::Publishing publishing(dataset.version(), successors);
  if (!publishing.may_publish()) return dataset.Outdated();
  Keep(dataset, catalog, std::move(described));
  return {};
}

void GfsPieces::Keep(Dataset& dataset, const std::shared_ptr<const catalog::Catalog>& catalog,
                     std::shared_ptr<tier::ResidentExtent> extent) {
  const MutexLock lock(mutex_);
  std::shared_ptr<const Source>& source = sources_[&dataset];
  if (!source) source = std::make_shared<Source>(dataset, catalog, gfs_, gate_);
  extent->source = source;
  // A data set and the one that replaced it may both describe the extent. The first entry stays.
  if (known_.contains(extent->key)) return;
  checksum_bytes_ += KeptBytes(*extent);
  uses_.push_front(extent->key);
  known_[extent->key] = {.extent = extent, .dataset = &dataset, .use = uses_.begin()};
  // The entry that was just added stays, even if it alone exceeds the limit.
  // Readers that use an evicted extent keep it alive by their references.
  while (checksum_bytes_ > limits::kPieceChecksumBytesMax && uses_.size() > 1) {
    const auto oldest = known_.find(uses_.back());
    checksum_bytes_ -= KeptBytes(*oldest->second.extent);
    known_.erase(oldest);
    uses_.pop_back();
  }
}

void GfsPieces::ForgetAll(std::uint64_t dataset) {
  const MutexLock lock(mutex_);
  std::erase_if(known_, [&](const auto& entry) FOREBAY_REQUIRES(mutex_) {
    const auto& [key, known] = entry;
    if (key.dataset != dataset) return false;
    checksum_bytes_ -= KeptBytes(*known.extent);
    uses_.erase(known.use);
    return true;
  });
}

void GfsPieces::Forget(const tier::ExtentRef& extent, const Error& found) {
  if (found.code() != ErrorCode::kDataLoss) return;
  const MutexLock lock(mutex_);
  // Several readers may report the same damage; only the first counts it.
  const auto known = known_.find(extent->key);
  if (known == known_.end() || known->second.extent != extent) return;
  Dataset& dataset = *known->second.dataset;
  dataset.first_reads().CountMismatch();
  log::Warn("data set '{}': a piece of extent {} does not match its first read; the extent is "
            "read again as a whole: {}",
            dataset.name(), tier::KeyText(extent->key), found.message());
  checksum_bytes_ -= KeptBytes(*extent);
  uses_.erase(known->second.use);
  known_.erase(known);
}

}  // namespace forebay::stage
