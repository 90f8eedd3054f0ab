// An extent in RAM is verified in place. One on SSD is read through two buffers in turn: while one
// is summed, the next part is read into the other. What is damaged is reported to ExtentCache,
// which drops and counts it.
#include "server/tier/scrubber.h"

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"
#include "server/tier/image_verifier.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::tier {
namespace {

io::Operation ReadOf(const Segment& segment, std::uint64_t offset, io::AlignedBuffer& buffer) {
  io::Operation read;
  // Whole blocks, because segments are opened for direct I/O. The padding after the image is read
  // with it and not summed.
  read.kind = io::OpKind::kRead;
  read.file = segment.file.get();
  read.offset = offset;
  read.buffer = buffer.span().first(std::min<std::uint64_t>(
      buffer.size(), SegmentShape::Padded(segment.image_bytes) - offset));
  return read;
}

}  // namespace

Scrubber::Scrubber(ExtentCache& cache, io::Clock& clock, PiecesOf pieces_of,
                   const Options& options, io::AlignedBuffer first, io::AlignedBuffer second)
    : cache_(&cache),
      clock_(&clock),
      pieces_of_(std::move(pieces_of)),
      options_(options),
      buffers_{std::move(first), std::move(second)},
      not_before_ns_(clock.NowNs()) {}

Result<Scrubber> Scrubber::Create(ExtentCache& cache, io::Clock& clock, PiecesOf pieces_of,
                                  const Options& options) {
  // Allocated once, so that a node that is short of memory later can still be scrubbed.
  FOREBAY_ASSIGN(io::AlignedBuffer first, io::AlignedBuffer::Create(kScrubBytes));
  FOREBAY_ASSIGN(io::AlignedBuffer second, io::AlignedBuffer::Create(kScrubBytes));
  return Scrubber(cache, clock, std::move(pieces_of), options, std::move(first),
                  std::move(second));
}

// Postpones the next start by the time that these bytes may take. The new time counts from now, not
// from the last start, so that a pause is not followed by a burst.
void Scrubber::Charge(std::uint64_t bytes) {
  counts_.bytes += bytes;
  if (options_.bytes_per_second == 0) return;
  // An extent has at most 64 MiB, so this does not overflow.
  const std::uint64_t cost_ns = bytes * 1'000'000'000 / options_.bytes_per_second;
  not_before_ns_ =
      std::max(not_before_ns_, clock_->NowNs()) + static_cast<std::int64_t>(cost_ns);
}

// Reads the next part while the checksums of the one before are computed. The queue is idle when
// this returns, because the buffers are used again.
Status Scrubber::ScrubSegment(const ResidentExtent& extent, io::IoQueue& queue,
                              std::span<const catalog::Range> pieces) {
  const Segment& segment = *extent.segment;
  ImageVerifier verifier(extent.key, extent.image_bytes, segment.checksums, pieces);
  std::vector<io::Completion> completions;
  std::size_t current = 0;
  // The operation is copied by the queue, so one variable serves all reads; only the buffers must
  // stay.
  io::Operation read = ReadOf(segment, 0, buffers_[current]);
  FOREBAY_TRY(queue.Submit({&read, 1}));
  for (std::uint64_t offset = 0; offset < extent.image_bytes; offset += kScrubBytes) {
    const std::uint64_t wanted = std::min<std::uint64_t>(kScrubBytes,
                                                         extent.image_bytes - offset);
    completions.clear();
    while (completions.empty()) queue.Wait(1, completions);
    Status status;
    if (!completions[0].bytes.has_value()) {
      status = completions[0].bytes.error();
    } else if (*completions[0].bytes < wanted) {
      status = Error(ErrorCode::kDataLoss,
                     "segment " + KeyText(extent.key) + " ends before its image does");
    }
    FOREBAY_TRY(status);
    const std::span<const std::byte> part = buffers_[current].span().first(wanted);
    current ^= 1;
    const bool has_more = extent.image_bytes - offset > kScrubBytes;
    if (has_more) {
      read = ReadOf(segment, offset + kScrubBytes, buffers_[current]);
      FOREBAY_TRY(queue.Submit({&read, 1}));
    }
    status = verifier.Feed(part);
    if (!status.has_value()) {
      completions.clear();
      while (has_more && completions.empty()) queue.Wait(1, completions);
      return status;
    }
  }
  return verifier.Finish();
}

Status Scrubber::ScrubExtent(const ExtentRef& extent, io::IoQueue& queue) {
  FOREBAY_CHECK(extent != nullptr);
  // A completion of somebody else would be taken for one of this extent.
  if (queue.in_flight() != 0) {
    return Error(ErrorCode::kFailedPrecondition, "a scrub needs an idle queue");
  }
  pieces_.clear();
  // An error may have left some pieces in the vector; without all of them none is of use.
  if (pieces_of_ && !pieces_of_(extent->key, pieces_).has_value()) pieces_.clear();
  // Charged before it is known whether the extent is sound: the device has to read it in any case.
  Charge(extent->image_bytes);
  ++counts_.extents;
  Status status =
      ImageVerifier::CheckShape(extent->key, extent->image_bytes, extent->sums(), pieces_);
  if (status.has_value() && extent->segment) {
    status = ScrubSegment(*extent, queue, pieces_);
  } else if (status.has_value()) {
    ImageVerifier verifier(extent->key, extent->image_bytes, extent->sums(), pieces_);
    status = verifier.Feed(extent->block.bytes());
    if (status.has_value()) status = verifier.Finish();
  }
  // Any other error says that the extent could not be read, and not that it is damaged.
  if (!status.has_value() && status.error().code() == ErrorCode::kDataLoss) {
    ++counts_.bad_extents;
  }
  return status;
}

bool Scrubber::DropIfDamaged(const ExtentRef& extent, const Status& found) {
  // An error of the device is no damage: the next read may succeed, and errors that persist retire
  // the tier.
  if (found.has_value() || found.error().code() != ErrorCode::kDataLoss) return false;
  cache_->ReportBad(extent, found.error(), clock_->NowNs());
  return true;
}

std::optional<Scrubber::Finding> Scrubber::ScrubNext(io::IoQueue& queue) {
  // Three turns visit every extent, wherever the last call ended: the rest of this tier, the other
  // tier, and this tier from its beginning.
  for (int turn = 0; turn < 3; ++turn) {
    while (next_in_round_ < round_.size()) {
      const ExtentKey key = round_[next_in_round_++];
      const ExtentRef extent = cache_->FindOn(key, next_tier_);
      if (!extent) continue;  // evicted meanwhile
      const Finding finding = {key, next_tier_, ScrubExtent(extent, queue)};
      DropIfDamaged(extent, finding.status);
      return finding;
    }
    if (turn > 0 || !round_.empty()) {
      next_tier_ = next_tier_ == TierKind::kRam ? TierKind::kSsd : TierKind::kRam;
    }
    // Listed once a round, because a node may hold half a million extents.
    round_ = cache_->Resident(next_tier_);
    next_in_round_ = 0;
  }
  return std::nullopt;
}

}  // namespace forebay::tier
