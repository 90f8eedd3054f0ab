// What kinds of global file system gfs_emu can play. Every constant is here, with its source.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace forebay::bench {

// The cost model of an emulated GFS. A value of 0 means "free".
struct GfsProfile {
  std::string_view name;
  double bandwidth_bytes_per_s = 0;    // one pool shared by all clients
  std::int64_t seek_ns = 0;            // disk time of a discontiguous read, in the same pool
  double opens_per_s = 0;              // one metadata server shared by all clients
  std::int64_t open_latency_ns = 0;    // of each open, after its turn; hidden by concurrency
  double metadata_per_s = 0;           // lookup, getattr, opendir, readdir together
  std::string_view source;             // why these numbers
};

// TSUBAME3's Lustre: 150 GB/s sequential against 9 GB/s random. The random figure is taken at
// the mean sample of MLPerf Storage's resnet50, the size of the reads that training issues.
inline constexpr double kTsubameSequentialBytesPerS = 150e9;
inline constexpr double kTsubameRandomBytesPerS = 9e9;
inline constexpr double kTsubameRandomReadBytes = 114'660;
// One machine's share here: 1/250 of the whole, so that the emulation itself (a FUSE server on
// two cores moves about 6 GB/s at full load) is not what is measured.
inline constexpr double kTsubameScale = 1.0 / 250;

// The disk time s of a seek that makes reads of r bytes at bandwidth b collapse by the factor
// q = (r / b + s) / (r / b): s = (q - 1) * r / b.
constexpr std::int64_t SeekNs(double bandwidth_bytes_per_s, double read_bytes, double collapse) {
  return static_cast<std::int64_t>((collapse - 1) * read_bytes / bandwidth_bytes_per_s * 1e9);
}

inline constexpr std::array<GfsProfile, 3> kGfsProfiles = {{
    {.name = "unlimited",
     .source = "No cost: the floor of the emulation itself (FUSE and the copy)."},
    {.name = "tsubame3",
     .bandwidth_bytes_per_s = kTsubameSequentialBytesPerS * kTsubameScale,
     .seek_ns = SeekNs(kTsubameSequentialBytesPerS * kTsubameScale, kTsubameRandomReadBytes,
                       kTsubameSequentialBytesPerS / kTsubameRandomBytesPerS),
     .opens_per_s = 2'000,
     .open_latency_ns = 200'000,
     .metadata_per_s = 40'000,
     .source = "TSUBAME3, 150:9 GB/s, scaled by 1/250. Opens: files of 110 KB are bound by "
               "opens (2,000/s = 230 MB/s), as on a metadata server shared by a machine."},
    {.name = "tsubame3-fast",
     .bandwidth_bytes_per_s = kTsubameSequentialBytesPerS * kTsubameScale,
     .seek_ns = SeekNs(kTsubameSequentialBytesPerS * kTsubameScale, kTsubameRandomReadBytes,
                       kTsubameSequentialBytesPerS / kTsubameRandomBytesPerS),
     .source = "The data path of tsubame3 with a free metadata server."},
}};

constexpr std::optional<GfsProfile> FindGfsProfile(std::string_view name) {
  for (const GfsProfile& profile : kGfsProfiles) {
    if (profile.name == name) return profile;
  }
  return std::nullopt;
}

}  // namespace forebay::bench
