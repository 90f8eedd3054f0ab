// Makes arenas and blocks for tests; a failure ends the test.
#pragma once

#include <cstdint>
#include <memory>

#include "server/io/testing/io_test_fixture.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::tier::testing {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kMiB = 1 << 20;

inline std::unique_ptr<RamArena> MakeArena(const RamArena::Options& options) {
  return io::testing::Take(RamArena::Create(options));
}
inline std::unique_ptr<RamArena> MakeArena(std::uint64_t bytes, std::uint64_t region_bytes) {
  return MakeArena({.capacity_bytes = bytes, .region_bytes = region_bytes});
}
// An arena of one region.
inline std::unique_ptr<RamArena> MakeArena(std::uint64_t bytes) { return MakeArena(bytes, bytes); }

inline ArenaBlock TakeBlock(RamArena& arena, std::uint64_t bytes, Stay stay = Stay::kLong) {
  return io::testing::Take(arena.Allocate(bytes, stay));
}

}  // namespace forebay::tier::testing
