// Between the loads of extents and the extent cache. A load that finds no memory waits for the
// MemorySignal of the arena: it comes when a block is freed, when nobody uses an extent any more,
// and when streams need extents at other times than before. Working memory is a count, not a place:
// a load registers the bytes that it will take, and a load that the GFS leaves without an answer
// stops counting after a while (LendMemoryOf). Called by the reader threads of the stager;
// LendMemoryOf by the daemon's main thread.
#include "server/stage/placement/staging_tiers.h"

#include <chrono>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentChecksums;
using tier::ExtentKey;

void StagingTiers::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  // Each waiter of Allocate tries once more, and so finds out.
  memory_.Notify();
  working_ended_.NotifyAll();
}

bool StagingTiers::is_stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

std::vector<ExtentKey> StagingTiers::KeysOf(std::uint64_t dataset) const {
  std::vector<ExtentKey> keys;
  for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
    for (const ExtentKey& key : cache_.Resident(kind)) {
      if (key.dataset == dataset) keys.push_back(key);
    }
  }
  return keys;
}

StagingTiers::WorkingMemory::~WorkingMemory() {
  {
    const MutexLock lock(tiers_.mutex_);
    // A lent share left the count when it was lent, and must not leave it twice.
    (share_->is_lent ? tiers_.lent_bytes_ : tiers_.working_bytes_) -= share_->bytes;
    tiers_.shares_.erase(share_);
  }
  tiers_.working_ended_.NotifyAll();
}

std::unique_ptr<StagingTiers::WorkingMemory> StagingTiers::AwaitWorkingMemory(
    std::uint64_t bytes, const std::function<bool()>& can_wait) {
  const std::uint64_t all = options_.working_bytes;
  const MutexLock lock(mutex_);
  const auto may_pass = [&]() FOREBAY_REQUIRES(mutex_) {
    // A load that can wait leaves space for one more extent of this size.
    const std::uint64_t bound = bytes <= all / 2 && can_wait() ? all - bytes : all;
    // A load that is alone passes, even if it needs more than all working memory; otherwise an
    // extent larger than that could never be staged.
    return stopping_ || all == 0 || working_bytes_ == 0 ||
           (bytes <= bound && working_bytes_ <= bound - bytes);
  };
  while (!may_pass()) working_ended_.Wait(mutex_);
  working_bytes_ += bytes;
  shares_.push_back({.bytes = bytes, .since_ns = clock_.NowNs()});
  return std::make_unique<WorkingMemory>(*this, std::prev(shares_.end()));
}

void StagingTiers::Hurried() {
  memory_.Notify();
  {
    const MutexLock lock(mutex_);  // a load that has just looked waits by now
  }
  working_ended_.NotifyAll();
}

void StagingTiers::LendMemoryOf(std::int64_t longer_than_ns) {
  const std::int64_t before_ns = clock_.NowNs() - longer_than_ns;
  bool has_lent = false;
  {
    const MutexLock lock(mutex_);
    for (Share& share : shares_) {
      // The list is in the order of time, so all that follow are younger.
      if (share.since_ns > before_ns) break;
      // No more than working_bytes are lent in total, which bounds what is taken from other
      // extents.
      if (share.is_lent || share.bytes > options_.working_bytes - lent_bytes_) continue;
      share.is_lent = true;
      working_bytes_ -= share.bytes;
      lent_bytes_ += share.bytes;
      has_lent = true;
    }
  }
  if (has_lent) working_ended_.NotifyAll();
}

Result<ArenaBlock> StagingTiers::Allocate(const MemoryRequest& request, io::IoQueue& queue) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(request.wait_ms);
  tier::MemorySignal::Waiter waiter(memory_);
  for (;;) {
    // Without this, a pass over a whole data set would outlive its daemon.
    if (is_stopping()) return Error(ErrorCode::kCancelled, "the daemon is shutting down");
    // Asked again for each try: a stream that was opened meanwhile may need the extent soon.
    const bool is_urgent = request.key == nullptr || (request.is_urgent && request.is_urgent());
    const std::uint64_t next_use =
        is_urgent ? kNeededNow : next_use_(*request.key, 0) + (request.only_later ? 1 : 0);
    auto block = cache_.AllocateRam(request.bytes, next_use, &queue, request.spares_homes);
    const bool may_wait =
        !block.has_value() && block.error().code() == ErrorCode::kResourceExhausted;
    if (!may_wait || !waiter.Await(deadline)) return block;
  }
}

bool StagingTiers::StoreOnSsd(const Dataset& dataset, const ExtentKey& key,
                              const ExtentImage& image, bool is_home, io::IoQueue& queue) {
  if (!options_.has_ssd) return false;
  // A guest on SSD may take free space only; nothing at home there makes way for it.
  const Status stored = cache_.PublishSsd(queue, key, image.block.bytes(), image.checksums,
                                          is_home ? next_use_(key, 0) : kEvictsNobody,
                                          /*is_guest=*/!is_home);
  // A damaged copy that is being removed still has its file, but FindOn does not return it.
  const bool is_there = stored.has_value() ||
                        (stored.error().code() == ErrorCode::kAlreadyExists &&
                         cache_.FindOn(key, tier::TierKind::kSsd) != nullptr);
  const bool refused_before = ssd_refuses_.exchange(!is_there);
  // One line for all extents of an incident; `forebay status` has the unstaged bytes.
  if (!is_there && !refused_before && stored.error().code() != ErrorCode::kAlreadyExists) {
    log::Warn("data set '{}': extent {} could not be stored on SSD, and others after it may not "
              "be either; check space and health of tier.ssd.directory, then run 'forebay "
              "stage': {}",
              dataset.name(), tier::KeyText(key), stored.error().ToString());
  }
  return is_there;
}

Status StagingTiers::StoreInRam(const ExtentKey& key, ExtentImage image, bool is_guest) {
  auto published =
      cache_.PublishRam(key, std::move(image.block), std::move(image.checksums), is_guest);
  // Another load of the same key was faster; its copy has the same checksums.
  if (!published.has_value() && published.error().code() != ErrorCode::kAlreadyExists) {
    return published.error();
  }
  return {};
}

Status StagingTiers::CopyToSsd(const tier::ResidentExtent& extent, io::IoQueue& queue) {
  FOREBAY_CHECK(extent.tier == tier::TierKind::kRam);
  const Status stored = cache_.PublishSsd(queue, extent.key, extent.block.bytes(),
                                          extent.checksums, next_use_(extent.key, 0));
  const bool is_there =
      stored.has_value() || stored.error().code() == ErrorCode::kAlreadyExists;
  return is_there ? Status() : stored;
}

Status StagingTiers::Promote(const tier::ResidentExtent& extent, const Promotion& promotion,
                             io::IoQueue& queue) {
  FOREBAY_CHECK(extent.tier == tier::TierKind::kSsd);
  FOREBAY_ASSIGN(ArenaBlock block,
                 Allocate({.bytes = extent.image_bytes,
                           .key = &extent.key,
                           .wait_ms = promotion.wait_ms,
                           .spares_homes = promotion.spares_homes},
                          queue));
  // The block is made of whole pages, so a direct read may fill its padding too.
  const std::span<std::byte> whole(block.bytes().data(),
                                   plan::FootprintBytes(extent.image_bytes));
  FOREBAY_TRY(io::ReadFully(queue, *extent.segment->file, 0, whole));
  const std::uint64_t image =
      Checksum(tier::PieceIdentity(extent.key, 0, extent.image_bytes), block.bytes());
  // Verified before it is published: a damaged copy on SSD must not become one in RAM.
  if (image != extent.sums().image) {
    return Error(ErrorCode::kDataLoss, "extent " + tier::KeyText(extent.key) +
                                           " on SSD does not match its checksum");
  }
  return StoreInRam(extent.key, {.block = std::move(block), .checksums = extent.sums()},
                    promotion.is_guest);
}

}  // namespace forebay::stage
