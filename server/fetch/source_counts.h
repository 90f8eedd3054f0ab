// SourceCounts: from which tier of this node samples came, and how many bytes were read for them.
#pragma once

#include <cstdint>

#include "server/tier/resident_extent.h"

namespace forebay::fetch {

struct SourceCounts {
  std::uint64_t ram_samples = 0;  // served from RAM
  std::uint64_t ssd_samples = 0;  // read from SSD
  std::uint64_t ram_bytes = 0;    // of them
  std::uint64_t ssd_bytes = 0;

  // Samples, and bytes of them, come from `source`. Those from the GFS are counted by their data
  // set.
  void CountSource(tier::TierKind source, std::uint64_t samples, std::uint64_t bytes) {
    if (source == tier::TierKind::kGfs) return;
    const bool is_ram = source == tier::TierKind::kRam;
    (is_ram ? ram_samples : ssd_samples) += samples;
    (is_ram ? ram_bytes : ssd_bytes) += bytes;
  }
  void Add(const SourceCounts& other) {
    ram_samples += other.ram_samples;
    ssd_samples += other.ssd_samples;
    ram_bytes += other.ram_bytes;
    ssd_bytes += other.ssd_bytes;
  }
};

}  // namespace forebay::fetch
