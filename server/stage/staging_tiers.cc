#include "server/stage/staging_tiers.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentChecksums;
using tier::ExtentKey;

void StagingTiers::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
}

bool StagingTiers::is_stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

Result<ArenaBlock> StagingTiers::Allocate(std::uint64_t bytes, std::uint64_t next_use) {
  constexpr std::int64_t kPauseMs = 20;
  constexpr int kAttemptsMax = limits::kMemoryWaitMs / kPauseMs;
  for (int attempt = 0;; ++attempt) {
    // A pass over a whole data set must not outlive its daemon either.
    if (is_stopping()) return Error(ErrorCode::kCancelled, "the daemon is shutting down");
    auto block = cache_.AllocateRam(bytes, next_use);
    if (block.has_value() || attempt == kAttemptsMax ||
        block.error().code() != ErrorCode::kResourceExhausted) {
      return block;
    }
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, std::chrono::milliseconds(kPauseMs), [this] { return stopping_; });
  }
}

Status StagingTiers::Publish(const Dataset& dataset, const ExtentKey& key, plan::Home home,
                             ExtentImage image, io::IoQueue& queue) {
  const bool to_ssd = home == plan::Home::kSsd;
  if (has_ssd_ && (to_ssd || dataset.options().persist)) {
    const Status stored =
        cache_.PublishSsd(queue, key, image.block.bytes(), image.checksums, next_use_(key));
    if (stored.has_value() && to_ssd) return {};
    if (!stored.has_value() && stored.error().code() != ErrorCode::kAlreadyExists) {
      spdlog::warn("data set '{}': extent {} could not be stored on SSD: {}", dataset.name(),
                   key.extent.value(), stored.error().ToString());
    }
  }
  return PublishRam(key, std::move(image.block), std::move(image.checksums));
}

Status StagingTiers::PublishRam(const ExtentKey& key, ArenaBlock block,
                                ExtentChecksums checksums) {
  auto published = cache_.PublishRam(key, std::move(block), std::move(checksums));
  if (!published.has_value() && published.error().code() != ErrorCode::kAlreadyExists) {
    return published.error();
  }
  return {};
}

Result<ArenaBlock> StagingTiers::Read(const tier::ResidentExtent& extent, io::IoQueue& queue) {
  FOREBAY_ASSIGN(ArenaBlock block, Allocate(extent.image_bytes, next_use_(extent.key)));
  if (extent.tier == tier::TierKind::kRam) {
    std::ranges::copy(extent.block.bytes(), block.bytes().begin());
    return block;
  }
  const std::uint64_t padded = plan::FootprintBytes(extent.image_bytes);
  // The block is made of whole pages, so a direct read may fill its padding too.
  const std::span<std::byte> whole(block.bytes().data(), padded);
  FOREBAY_TRY(io::ReadFully(queue, *extent.segment->file, 0, whole));
  const std::uint64_t image =
      Checksum(tier::PieceIdentity(extent.key, 0, extent.image_bytes), block.bytes());
  if (image != extent.sums().image) {
    return Error(ErrorCode::kDataLoss, "extent " + std::to_string(extent.key.extent.value()) +
                                           " on SSD does not match its checksum");
  }
  return block;
}

Status StagingTiers::Promote(const tier::ResidentExtent& extent, io::IoQueue& queue) {
  FOREBAY_ASSIGN(ArenaBlock block, Read(extent, queue));
  return PublishRam(extent.key, std::move(block), extent.sums());
}

}  // namespace forebay::stage
