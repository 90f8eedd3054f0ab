#include "server/daemon/verifier.h"

#include <utility>

#include <fmt/format.h>

#include "server/fetch/piece_reader.h"
#include "server/io/aligned_buffer.h"

namespace forebay::daemon {
namespace {

// Checks one resident extent against the checksums taken when it came off the GFS.
Status CheckExtent(const tier::ResidentExtent& extent, const std::vector<catalog::Range>& pieces,
                   io::IoQueue& queue, io::AlignedBuffer& buffer) {
  std::span<const std::byte> image = extent.block.bytes();
  if (extent.tier == tier::TierKind::kSsd) {
    const std::uint64_t padded = plan::FootprintBytes(extent.image_bytes);
    FOREBAY_TRY(io::ReadFully(queue, *extent.segment->file, 0, buffer.span().first(padded)));
    image = buffer.span().first(extent.image_bytes);
  }
  if (pieces.size() != extent.sums().pieces.size()) {
    return Error(ErrorCode::kDataLoss, "its checksum table does not fit its catalog");
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    FOREBAY_TRY(tier::VerifyPiece(extent.key, pieces[i], extent.sums().pieces[i],
                                  image.subspan(pieces[i].offset, pieces[i].length)));
  }
  const std::uint64_t whole =
      Checksum(tier::PieceIdentity(extent.key, 0, extent.image_bytes), image);
  if (whole == extent.sums().image) return {};
  return Error(ErrorCode::kDataLoss, "bytes between its samples do not match their checksum");
}

}  // namespace

Status Verifier::Run(const std::vector<stage::Dataset*>& datasets, const Progress& progress) {
  FOREBAY_ASSIGN(const auto queue, backend_.CreateQueue({.depth = 16}));
  FOREBAY_ASSIGN(io::AlignedBuffer buffer, io::AlignedBuffer::Create(limits::kExtentBytesMax));
  struct Work {
    stage::Dataset* dataset;
    tier::ExtentKey key;
    tier::TierKind tier;
  };
  std::vector<Work> work;
  for (stage::Dataset* dataset : datasets) {
    if (!dataset->catalog()) continue;
    for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
      for (const tier::ExtentKey& key : cache_.Resident(kind)) {
        if (key.dataset == dataset->hash()) work.push_back({dataset, key, kind});
      }
    }
  }
  VerifyCounts counts;
  counts.extents_total = work.size();
  for (const Work& item : work) {
    std::vector<std::string> errors;
    const tier::ExtentRef extent = cache_.FindOn(item.key, item.tier);
    ++counts.extents_done;
    if (extent) {
      std::vector<catalog::Range> pieces;
      Status checked = item.dataset->catalog()->Pieces(item.key.extent, pieces);
      if (checked.has_value()) checked = CheckExtent(*extent, pieces, *queue, buffer);
      counts.bytes_done += extent->image_bytes;
      if (!checked.has_value()) {
        ++counts.extents_bad;
        errors.push_back(fmt::format("data set '{}', extent {} on {}: {}", item.dataset->name(),
                                     item.key.extent.value(),
                                     item.tier == tier::TierKind::kRam ? "ram" : "ssd",
                                     checked.error().message()));
        if (item.tier == tier::TierKind::kSsd) {
          cache_.ReportBadSegment(item.key, clock_.NowNs());
        } else if (!cache_.Evict(item.key, item.tier).has_value()) {
          errors.back() += " (and it was gone before it could be evicted)";
        }
      }
    }
    if (!progress(counts, std::move(errors))) {
      return Error(ErrorCode::kCancelled, "verification was stopped");
    }
  }
  counts.done = true;
  progress(counts, {});
  return {};
}

}  // namespace forebay::daemon
