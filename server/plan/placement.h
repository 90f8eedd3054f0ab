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
  kTransient = 2,  // fits nowhere: read from the GFS when needed, kept while there is room
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

// How the RAM tier of a node is divided: a part for extents whose home it is, the rest for staging
// to work in and for what no block can use.
struct RamPlan {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t largest_extent_bytes = 0;  // that is expected
  // Extents pass through RAM on their way: to SSD, to be compressed, or cut out of a scan.
  bool has_passing_extents = false;

  // Memory that extents pass through: a sixteenth of the tier, but room for two extents (one that
  // is read while another is written), and never more than a quarter. 0 where none pass.
  std::uint64_t WorkingBytes() const;
  // Memory for homes. Beside the working memory, a thirty-second of the tier is not planned: blocks
  // do not cross regions of 1 GiB, so half an extent of each is lost on average.
  std::uint64_t HomeBytes() const;
  // The smallest capacity, in whole MiB, whose HomeBytes are at least `bytes`.
  std::uint64_t CapacityFor(std::uint64_t bytes) const;
};

// Decides one extent after another, as their sizes become known.
class Placer {
 public:
  explicit Placer(const Room& room) : room_(room) {}
  Home Place(const Footprint& footprint);
  // Takes the room in RAM for an extent, or takes nothing and returns false.
  bool PlaceInRam(const Footprint& footprint);
  // What was placed as `planned` does not go there: its room is free again.
  void Release(Home home, const Footprint& planned);
  // No room on SSD is given or taken back from now on.
  void CloseSsd();
  const Room& left() const { return room_; }

 private:
  Room room_;
  bool is_ssd_closed_ = false;
};

}  // namespace forebay::plan
