// Encoded bytes lie in memory outside the arena until the packed image is allocated. A Turn bounds
// how much is encoded at once, by the raw bytes, because the encoded size is not known before.
#include "server/stage/packed/extent_packer.h"

#include <algorithm>
#include <utility>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stage/packed/packed_extent.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentKey;

ExtentPacker::Turn::Turn(ExtentPacker& packer, std::uint64_t raw_bytes)
    : packer_(packer), raw_bytes_(raw_bytes) {
  const MutexLock lock(packer_.mutex_);
  // An extent that alone exceeds the limit is encoded when no other one is, so it cannot starve.
  const auto may_begin = [&]() FOREBAY_REQUIRES(packer_.mutex_) {
    const std::uint64_t taken = std::min(limits::kPackingBytesMax, packer_.raw_bytes_);
    // After Stop every turn is granted: PackExtent then finds that the tiers stop, and ends.
    return packer_.stopping_ || packer_.raw_bytes_ == 0 ||
           raw_bytes_ <= limits::kPackingBytesMax - taken;
  };
  while (!may_begin()) packer_.changed_.Wait(packer_.mutex_);
  packer_.raw_bytes_ += raw_bytes_;
}

ExtentPacker::Turn::~Turn() {
  {
    const MutexLock lock(packer_.mutex_);
    packer_.raw_bytes_ -= raw_bytes_;
  }
  packer_.changed_.NotifyAll();
}

void ExtentPacker::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
}

Result<ExtentImage> ExtentPacker::Make(const PackedForm& form, const ExtentKey& key,
                                       ArenaBlock raw, std::uint64_t raw_checksum,
                                       io::IoQueue& queue) {
  const Turn turn(*this, raw.bytes().size());
  // The turn ends with this call, when the packed image is in the arena.
  FOREBAY_ASSIGN(const PackedExtent packed,
                 PackExtent(form, key, raw.bytes(), raw_checksum,
                            [this] { return tiers_.is_stopping(); }));
  if (packed.escaped_chunks > 0) {
    log::Error("{} chunks of extent {} failed the round-trip check; stored uncompressed",
               packed.escaped_chunks, tier::KeyText(key));
  }
  raw = ArenaBlock();  // frees the raw image, so that the packed image finds space
  FOREBAY_ASSIGN(ArenaBlock block, tiers_.Allocate({.bytes = packed.bytes, .key = &key}, queue));
  packed.CopyTo(block.bytes());
  tier::ExtentChecksums checksums = tier::ComputeChecksums(key, block.bytes(), packed.pieces);
  return ExtentImage{.block = std::move(block), .checksums = std::move(checksums)};
}

}  // namespace forebay::stage
