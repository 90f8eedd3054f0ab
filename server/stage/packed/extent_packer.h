// ExtentPacker: compresses the raw image of an extent to the image that is stored. Limits how much
// is encoded at once, because the encoded bytes are in memory outside the arena.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/stage/packed/packed_form.h"
#include "server/stage/placement/staging_tiers.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

// Thread-safe.
class ExtentPacker {
 public:
  // `tiers` is borrowed.
  explicit ExtentPacker(StagingTiers& tiers) : tiers_(tiers) {}

  // From now on no call waits for a turn. Call after `tiers` have been stopped.
  void Stop();

  // Compresses the raw image of the extent `key` in `form`. Frees `raw` as soon as it is encoded;
  // the result is in memory of the RAM tier. `queue`: for StagingTiers::Allocate. kCancelled: stop.
  Result<ExtentImage> Make(const PackedForm& form, const tier::ExtentKey& key,
                           tier::ArenaBlock raw, std::uint64_t raw_checksum, io::IoQueue& queue);

 private:
  // Permission to encode `raw_bytes`: waits until the limit allows them, counts them until its end.
  class Turn {
   public:
    Turn(ExtentPacker& packer, std::uint64_t raw_bytes);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ExtentPacker& packer_;
    const std::uint64_t raw_bytes_;
  };

  StagingTiers& tiers_;
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t raw_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;  // being encoded now
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
};

}  // namespace forebay::stage
