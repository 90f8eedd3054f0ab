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

// Page-rounded bytes that an image of `image_bytes` takes on a tier.
std::uint64_t FootprintBytes(std::uint64_t image_bytes);

// Decides one extent after another, as their sizes become known.
class Placer {
 public:
  explicit Placer(const Room& room) : room_(room) {}
  Home Place(std::uint64_t image_bytes);
  // An image that was placed as one of `planned_bytes` has `image_bytes`: where it goes after
  // all, and for `image_bytes` from then on. What it does not take is free again; where it is too
  // large for the room that is left, it goes to SSD, or is transient. One that was transient is
  // placed where there is room by now.
  Home Settle(Home home, std::uint64_t planned_bytes, std::uint64_t image_bytes);
  // What was placed as an image of `planned_bytes` does not go there: its room is free again.
  void Release(Home home, std::uint64_t planned_bytes);
  const Room& left() const { return room_; }

 private:
  std::uint64_t* RoomOf(Home home);

  Room room_;
};

}  // namespace forebay::plan
