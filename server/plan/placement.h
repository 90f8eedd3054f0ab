// Placement: which tier each extent goes to when the whole data set is staged on this node.
// Today a greedy fill in staging order; the optimising solver of a later issue replaces the
// body, not the interface.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::plan {

enum class Home : std::uint8_t {
  kRam = 0,
  kSsd = 1,
  kTransient = 2,  // fits on no tier: read from the GFS when needed, kept while there is space
};

struct Room {
  std::uint64_t ram_bytes = 0;  // free for extents, staging reserve already taken off
  std::uint64_t ssd_bytes = 0;
};

// Page-rounded bytes that an image of `image_bytes` takes in RAM.
std::uint64_t FootprintBytes(std::uint64_t image_bytes);

// What an extent takes on each tier. On SSD its checksums lie beside its image.
struct Footprint {
  std::uint64_t ram_bytes = 0;
  std::uint64_t ssd_bytes = 0;
};

// How the RAM tier of a node is divided: a part for extents whose home it is, the rest as memory
// for staging to work in and for what no block can use.
struct RamPlan {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t largest_extent_bytes = 0;  // expected
  // Extents pass through RAM on their way to SSD, to be compressed, or when cut out of a scan.
  bool has_passing_extents = false;

  // Memory that extents pass through: a sixteenth of the tier, at least two extents (one is read
  // while another is written), and never more than a quarter. 0 if none pass.
  std::uint64_t WorkingBytes() const;
  // Memory for homes: the tier without the working memory, or without a thirty-second of the tier
  // if that is more. Blocks do not cross regions of 1 GiB, so on average half an extent of each
  // region is lost.
  std::uint64_t HomeBytes() const;
  // The smallest capacity, in whole MiB, whose HomeBytes are at least `bytes`.
  std::uint64_t CapacityFor(std::uint64_t bytes) const;
};

// How much of the SSD tier extents may call their home: the cache begins to evict beyond.
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

  Room HomeRoom() const { return {.ram_bytes = ram.HomeBytes(), .ssd_bytes = ssd.HomeBytes()}; }
};

// Decides one extent after another, as their sizes become known.
class Placer {
 public:
  explicit Placer(const Room& room) : room_(room) {}
  Home Place(const Footprint& footprint);
  // Takes the room in RAM for an extent, or takes nothing and returns false.
  bool PlaceInRam(const Footprint& footprint);
  // Frees the space of an extent that was placed as `planned`.
  void Release(Home home, const Footprint& planned);
  // From now on no space on SSD is given out, and none is taken back.
  void CloseSsd();
  const Room& left() const { return room_; }

 private:
  Room room_;
  bool is_ssd_closed_ = false;
};

}  // namespace forebay::plan
