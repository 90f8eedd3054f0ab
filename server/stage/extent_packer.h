// ExtentPacker: the image of an extent as it will be stored, from what came off the GFS. What is
// being encoded at once is bounded, for it lies in memory beside the arena.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "proto/contract/result.h"
#include "server/stage/packed_form.h"
#include "server/stage/staging_tiers.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

// Thread-safe. All may end with kCancelled.
class ExtentPacker {
 public:
  // `tiers` is borrowed.
  explicit ExtentPacker(StagingTiers& tiers) : tiers_(tiers) {}

  // Nobody waits for others to end any more; `tiers` have been stopped.
  void Stop();

  // Compresses the raw image of the extent `key` in `form`. `raw` is freed as soon as it is
  // encoded; the result lies in memory of the RAM tier. `queue`: StagingTiers::Allocate's.
  Result<ExtentImage> Make(const PackedForm& form, const tier::ExtentKey& key,
                           tier::ArenaBlock raw, io::IoQueue& queue);

 private:
  // Waits until so many raw bytes may be encoded beside the others', and takes their place.
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
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t raw_bytes_ = 0;  // of extents that are being encoded
  bool stopping_ = false;
};

}  // namespace forebay::stage
