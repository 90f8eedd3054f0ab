// The RAM tier without I/O: reserving memory, publishing, finding and letting go of extents.
// Beside them what the memory itself does, for an extent that is filled and for rows that are
// gathered, with and without huge pages.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "server/tier/extent_cache.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kArenaBytes = 512 * limits::kMiB;
constexpr std::uint64_t kBlockBytes = 64 * limits::kKiB;
constexpr std::uint32_t kExtents = 4096;  // 256 MiB of small extents: the cost is the book-keeping

ExtentKey KeyAt(std::uint32_t extent) {
  return {.dataset = 7, .extent = ExtentId(extent), .identity = 0x9E3779B97F4A7C15ULL * extent};
}

struct Tier {
  std::unique_ptr<RamArena> arena;
  std::unique_ptr<ExtentCache> cache;
};

// A cache over an arena; with `extents` extents in it.
Tier MakeTier(std::uint32_t extents) {
  Tier tier;
  auto arena = RamArena::Create({.capacity_bytes = kArenaBytes, .first_region = RegionId(0)});
  if (!arena.has_value()) return tier;
  tier.arena = *std::move(arena);
  tier.cache = ExtentCache::Create(*tier.arena, nullptr, {},
                                   [](const ExtentKey& key, std::uint64_t) {
                                     return std::uint64_t{key.extent.value()};
                                   });
  for (std::uint32_t i = 0; i < extents; ++i) {
    auto block = tier.cache->AllocateRam(kBlockBytes, i);
    if (!block.has_value() ||
        !tier.cache->PublishRam(KeyAt(i), *std::move(block), {}).has_value()) {
      return {};
    }
  }
  return tier;
}

void BM_ArenaReserveRelease(benchmark::State& state) {
  auto arena = RamArena::Create({.capacity_bytes = kArenaBytes, .first_region = RegionId(0)});
  if (!arena.has_value()) return state.SkipWithError("no arena");
  // Blocks that stay leave the free runs that a daemon in use has.
  std::vector<ArenaBlock> held;
  for (std::uint32_t i = 0; i < 2 * kExtents; ++i) {
    auto block = (*arena)->Allocate(kBlockBytes);
    if (block.has_value()) held.push_back(*std::move(block));
  }
  for (std::size_t i = 0; i < held.size(); i += 3) held[i] = ArenaBlock();
  for (auto _ : state) {
    auto block = (*arena)->Allocate(kBlockBytes);
    if (!block.has_value()) return state.SkipWithError("the arena is full");
    benchmark::DoNotOptimize(block->bytes().data());
  }
  state.SetItemsProcessed(state.iterations());
}

// What a stager does per extent besides reading and checksumming it.
void BM_ReservePublishEvict(benchmark::State& state) {
  const Tier tier = MakeTier(kExtents / 2);
  if (tier.cache == nullptr) return state.SkipWithError("no cache");
  std::uint32_t next = kExtents;
  for (auto _ : state) {
    auto block = tier.cache->AllocateRam(kBlockBytes, 0);
    if (!block.has_value()) return state.SkipWithError("the arena is full");
    const ExtentKey key = KeyAt(next++);
    if (!tier.cache->PublishRam(key, *std::move(block), {}).has_value() ||
        !tier.cache->Evict(key, TierKind::kRam).has_value()) {
      return state.SkipWithError("not published");
    }
  }
  state.SetItemsProcessed(state.iterations());
}

void BM_FindRelease(benchmark::State& state) {
  const Tier tier = MakeTier(kExtents);
  if (tier.cache == nullptr) return state.SkipWithError("no cache");
  std::uint32_t extent = 0;
  for (auto _ : state) {
    extent = (extent + 1597) % kExtents;
    benchmark::DoNotOptimize(tier.cache->Find(KeyAt(extent)));
  }
  state.SetItemsProcessed(state.iterations());
}

// The extents of one minibatch under one lock.
void BM_FindBatch(benchmark::State& state) {
  const Tier tier = MakeTier(kExtents);
  if (tier.cache == nullptr) return state.SkipWithError("no cache");
  std::vector<ExtentKey> keys(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = KeyAt(static_cast<std::uint32_t>(i * 1597 % kExtents));
  }
  std::vector<ExtentRef> found(keys.size());
  for (auto _ : state) {
    tier.cache->Find(keys, found);
    benchmark::DoNotOptimize(found.data());
    std::fill(found.begin(), found.end(), nullptr);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// The limit of whatever fills a block: one core copying memory that lies in no cache.
void BM_MemoryCopy(benchmark::State& state) {
  const std::size_t bytes = 64 * limits::kMiB;
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes, std::byte{2});
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

// The limit of whatever looks at each byte of an extent once, as checksums do: the C library's
// widest loads, and next to no work on them.
void BM_MemoryRead(benchmark::State& state) {
  const std::vector<std::byte> bytes(limits::kExtentBytesDefault, std::byte{1});
  for (auto _ : state) {
    benchmark::DoNotOptimize(std::memchr(bytes.data(), 2, bytes.size()));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

// Measures the copy of a batch of 64 rows of 4 KiB from random places, by the pages of the arena:
// small (0), transparent huge pages (1), reserved ones (2; small or transparent where too few are
// reserved). The label has the share of the memory that lies in huge pages.
void BM_GatherRows(benchmark::State& state) {
  const std::uint64_t bytes = limits::kGiB;
  constexpr std::uint64_t kRowBytes = 4096;
  auto arena = RamArena::Create(
      {.capacity_bytes = bytes, .huge_pages = static_cast<HugePageUse>(state.range(0))});
  if (!arena.has_value()) return state.SkipWithError("no arena");
  auto rows = (*arena)->Allocate(bytes);
  if (!rows.has_value()) return state.SkipWithError("no memory");
  std::memset(rows->bytes().data(), 1, bytes);
  const PageCounts pages = (*arena)->page_counts();
  state.SetLabel(std::to_string((pages.reserved_bytes + pages.transparent_bytes) * 100 / bytes) +
                 "% huge");
  std::mt19937_64 random(7);
  std::vector<std::byte> batch(64 * kRowBytes);
  for (auto _ : state) {
    for (std::uint64_t row = 0; row < 64; ++row) {
      std::memcpy(&batch[row * kRowBytes],
                  &rows->bytes()[random() % (bytes / kRowBytes) * kRowBytes], kRowBytes);
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * 64);
}

// The first use of an extent of 32 MiB: the memory is given out, and each page touched.
void BM_FirstTouch(benchmark::State& state) {
  const std::uint64_t bytes = 32 * limits::kMiB;
  for (auto _ : state) {
    state.PauseTiming();
    auto arena = RamArena::Create(
        {.capacity_bytes = bytes, .huge_pages = static_cast<HugePageUse>(state.range(0))});
    if (!arena.has_value()) return state.SkipWithError("no arena");
    state.ResumeTiming();
    auto block = (*arena)->Allocate(bytes);
    if (!block.has_value()) return state.SkipWithError("no memory");
    for (std::uint64_t at = 0; at < bytes; at += 4096) block->bytes()[at] = std::byte{1};
    state.PauseTiming();
    block = ArenaBlock();
    arena->reset();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

BENCHMARK(BM_ArenaReserveRelease);
BENCHMARK(BM_ReservePublishEvict);
BENCHMARK(BM_FindRelease);
BENCHMARK(BM_FindBatch)->Arg(64);
BENCHMARK(BM_MemoryCopy);
BENCHMARK(BM_MemoryRead);
BENCHMARK(BM_GatherRows)->DenseRange(0, 2);
BENCHMARK(BM_FirstTouch)->DenseRange(0, 1);

}  // namespace
}  // namespace forebay::tier
