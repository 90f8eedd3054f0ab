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

}  // namespace forebay::plan
