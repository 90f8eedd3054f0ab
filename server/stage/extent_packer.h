// ExtentPacker: the image of an extent as it will be stored, from what came off the GFS. What is
// being encoded at once is bounded, for it lies in memory beside the arena.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/stage/packed_extent.h"
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

  // The extent of `key` in `form`. `raw` goes as soon as it is encoded.
  Result<ExtentImage> Make(const PackedForm& form, const tier::ExtentKey& key,
                           tier::ArenaBlock raw);
  // In memory of its own, which is the caller's to bound from then on. `decode_rounds`: PackWork's.
  Result<PackedExtent> Encode(const PackedForm& form, const tier::ExtentKey& key,
                              std::span<const std::byte> raw, std::uint32_t decode_rounds);
  // What was encoded, in memory of the tier.
  Result<ExtentImage> Place(const tier::ExtentKey& key, const PackedExtent& packed);

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

  Result<PackedExtent> EncodeInTurn(const PackedForm& form, const tier::ExtentKey& key,
                                    std::span<const std::byte> raw,
                                    std::uint32_t decode_rounds);

  StagingTiers& tiers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t raw_bytes_ = 0;  // of extents that are being encoded
  bool stopping_ = false;
};

}  // namespace forebay::stage
