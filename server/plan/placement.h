// Placement: the home of each extent, which is the tier that has space reserved for it. Placer
// fills RAM, then SSD, in the order of staging. RamPlan and SsdPlan say how much of each tier is
// for homes. `stage` places extents; `capacity_need.h` and the daemon's checks repeat the
// arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::plan {

// The tier that is the home of an extent.
enum class HomeTier : std::uint8_t {
  kRam = 0,
  kSsd = 1,
  kNone = 2,  // fits on no tier: read from the GFS when needed, and kept while there is space
};

// Space for homes on each tier.
struct TierSpace {
  std::uint64_t ram_bytes = 0;  // free for homes; without the memory that staging works in
  std::uint64_t ssd_bytes = 0;
};

// The bytes that an extent of `image_bytes` takes in RAM: rounded up to pages.
std::uint64_t FootprintBytes(std::uint64_t image_bytes);

// The space that an extent takes on each tier. On SSD its checksums lie beside its bytes.
struct Footprint {
  std::uint64_t ram_bytes = 0;
  std::uint64_t ssd_bytes = 0;
};

// How the RAM tier of a node is divided: one part for homes, the rest for staging to work in and
// for the space that no block can use.
struct RamPlan {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t largest_extent_bytes = 0;  // the largest that is expected
  // True if extents pass through RAM: on their way to SSD, to be compressed, or out of a scan.
  bool has_passing_extents = false;

  // The memory that extents pass through: a sixteenth of the tier, and at least two extents (one is
  // read while another is written). In a small tier it is a quarter, or one extent where that is
  // more, but at most half. 0 if no extents pass.
  std::uint64_t WorkingBytes() const;
  // The memory for homes: the tier without its working memory, but at most 31/32 of the tier.
  // Blocks do not cross regions of 1 GiB, so on average half an extent is lost in each region.
  std::uint64_t HomeBytes() const;
  // The smallest capacity, in whole MiB, whose HomeBytes are at least `bytes`.
  std::uint64_t CapacityFor(std::uint64_t bytes) const;
};

// How much of the SSD tier is for homes. The cache evicts when the tier is fuller than this.
struct SsdPlan {
  std::uint64_t capacity_bytes = 0;  // 0: there is no such tier
  std::uint64_t home_permille = 1000;

  std::uint64_t HomeBytes() const { return capacity_bytes / 1000 * home_permille; }
  // The smallest capacity, in whole MiB, whose HomeBytes are at least `bytes`.
  std::uint64_t CapacityFor(std::uint64_t bytes) const;
};

// The tiers of a node, as configured.
struct TierPlan {
  RamPlan ram;
  SsdPlan ssd;

  TierSpace HomeSpace() const {
    return {.ram_bytes = ram.HomeBytes(), .ssd_bytes = ssd.HomeBytes()};
  }
};

// Places one extent after another, as their sizes become known. Not thread-safe.
class Placer {
 public:
  explicit Placer(const TierSpace& space) : space_(space) {}
  HomeTier Place(const Footprint& footprint);
  // Reserves space in RAM for an extent, or reserves nothing and returns false.
  bool PlaceInRam(const Footprint& footprint);
  // Frees the space of an extent that was placed as `planned`.
  void Release(HomeTier home, const Footprint& planned);
  // From now on reserves no space on SSD and takes none back, because the tier is retired.
  void CloseSsd();
  const TierSpace& left() const { return space_; }

 private:
  TierSpace space_;
  bool is_ssd_closed_ = false;
};

}  // namespace forebay::plan
