#include "server/plan/placement.h"

#include "proto/contract/limits.h"

namespace forebay::plan {

std::uint64_t FootprintBytes(std::uint64_t image_bytes) {
  constexpr std::uint64_t kPage = limits::kIoAlignmentBytes;
  return (image_bytes + kPage - 1) / kPage * kPage;
}

Home Placer::Place(std::uint64_t image_bytes) {
  const std::uint64_t footprint = FootprintBytes(image_bytes);
  if (footprint <= room_.ram_bytes) {
    room_.ram_bytes -= footprint;
    return Home::kRam;
  }
  if (footprint <= room_.ssd_bytes) {
    room_.ssd_bytes -= footprint;
    return Home::kSsd;
  }
  return Home::kTransient;
}

// Null where there is none to speak of.
std::uint64_t* Placer::RoomOf(Home home) {
  if (home == Home::kRam) return &room_.ram_bytes;
  return home == Home::kSsd ? &room_.ssd_bytes : nullptr;
}

void Placer::Release(Home home, std::uint64_t planned_bytes) {
  if (std::uint64_t* const room = RoomOf(home)) *room += FootprintBytes(planned_bytes);
}

Home Placer::Settle(Home home, std::uint64_t planned_bytes, std::uint64_t image_bytes) {
  std::uint64_t* const room = RoomOf(home);
  if (room == nullptr) return Place(image_bytes);
  Release(home, planned_bytes);
  const std::uint64_t footprint = FootprintBytes(image_bytes);
  if (footprint <= *room) {
    *room -= footprint;
    return home;
  }
  // What lies in RAM for want of room elsewhere is the first to go.
  if (home == Home::kSsd || footprint > room_.ssd_bytes) return Home::kTransient;
  room_.ssd_bytes -= footprint;
  return Home::kSsd;
}

}  // namespace forebay::plan
