// Allocate takes a run of pages under the mutex. Whatever touches memory comes after the mutex was
// released, because it can take milliseconds: making pages huge, and the copy of Slide. Create
// makes each region in a thread of its own if its pages must be zeroed now.
#include "server/tier/ram/ram_arena.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <string>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/tier/ram/populate_ahead.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kPageBytes = limits::kIoAlignmentBytes;

}  // namespace

ArenaBlock::ArenaBlock(ArenaBlock&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      region_(other.region_),
      region_offset_(other.region_offset_),
      bytes_(std::exchange(other.bytes_, {})) {}

ArenaBlock& ArenaBlock::operator=(ArenaBlock&& other) noexcept {
  if (this != &other) {
    if (arena_ != nullptr) arena_->Free(*this);
    arena_ = std::exchange(other.arena_, nullptr);
    region_ = other.region_;
    region_offset_ = other.region_offset_;
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

ArenaBlock::~ArenaBlock() {
  if (arena_ != nullptr) arena_->Free(*this);
}

Result<std::unique_ptr<RamArena>> RamArena::Create(const Options& options) {
  const std::uint64_t capacity_bytes = options.capacity_bytes / kPageBytes * kPageBytes;
  const std::uint64_t region_bytes = options.region_bytes / kPageBytes * kPageBytes;
  if (capacity_bytes == 0 || region_bytes == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "a ram arena needs a page at least: capacity_bytes=" +
                     std::to_string(options.capacity_bytes) +
                     ", region_bytes=" + std::to_string(options.region_bytes));
  }
  const std::uint64_t count = (capacity_bytes - 1) / region_bytes + 1;
  if (count > limits::kRegionCountMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "a ram arena of " + std::to_string(count) +
                     " regions exceeds kRegionCountMax=" +
                     std::to_string(limits::kRegionCountMax) + "; raise region_bytes");
  }
  // Reserved pages are zeroed now, at 0.1 s per GiB and thread, so each region has its own thread,
  // or, where the system allows no more threads, this one.
  const bool is_slow = options.huge_pages == HugePageUse::kAuto && ReservedHugePages() > 0;
  const auto launch = is_slow ? std::launch::async | std::launch::deferred : std::launch::deferred;
  std::vector<std::future<Result<SharedRegion>>> made;
  for (std::uint64_t left = capacity_bytes; left > 0; left -= std::min(left, region_bytes)) {
    made.push_back(std::async(launch, SharedRegion::Create, "forebay-ram",
                              std::min(left, region_bytes), options.huge_pages));
  }
  std::vector<SharedRegion> regions;
  regions.reserve(count);
  for (std::future<Result<SharedRegion>>& future : made) {
    // After an error, the destructors of the other futures wait for their threads.
    FOREBAY_ASSIGN(SharedRegion region, future.get());
    regions.push_back(std::move(region));
  }
  Options whole = options;
  whole.capacity_bytes = capacity_bytes;
  whole.region_bytes = region_bytes;
  return std::unique_ptr<RamArena>(new RamArena(whole, std::move(regions)));
}

RamArena::RamArena(const Options& options, std::vector<SharedRegion> regions)
    : first_region_(options.first_region),
      capacity_bytes_(options.capacity_bytes),
      lowest_first_(options.lowest_first),
      regions_(std::move(regions)),
      pages_(regions_, options.huge_pages) {
  // The memfds are rounded up to huge pages, but no more than the capacity is given out.
  std::uint64_t left = capacity_bytes_;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const std::uint64_t bytes = std::min(left, options.region_bytes);
    runs_.AddRegion(bytes / kPageBytes);
    left -= bytes;
  }
  if (options.populate_ahead_bytes == 0) return;
  ahead_ = std::make_unique<PopulateAhead>(regions_, pages_, options.populate_ahead_bytes);
  if (!options.populate_at_start) return;
  // Takes a page and frees it again, to learn where the first block will lie.
  const PageRuns::Run first = *TakeLocked(1, Stay::kLong);
  runs_.Give(first);
  ahead_->Reach(first.region, first.first_page * kPageBytes);
}

RamArena::~RamArena() { FOREBAY_CHECK(used_bytes() == 0); }

std::uint64_t RamArena::used_bytes() const {
  MutexLock lock(mutex_);
  return capacity_bytes_ - runs_.free_pages() * kPageBytes;
}

std::uint64_t RamArena::largest_free_bytes() const {
  MutexLock lock(mutex_);
  return runs_.longest_run_pages() * kPageBytes;
}

void RamArena::DrainPopulation() {
  if (ahead_) ahead_->Drain();
}

std::uint64_t RamArena::populated_ahead_bytes() const {
  return ahead_ ? ahead_->populated_bytes() : 0;
}

Result<ArenaBlock> RamArena::Allocate(std::uint64_t bytes, Stay stay) {
  if (bytes == 0) return Error(ErrorCode::kInvalidArgument, "arena block of 0 bytes");
  if (bytes > capacity_bytes_) return Full(bytes, "exceed its capacity");
  const std::uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  std::optional<PageRuns::Run> run;
  {
    MutexLock lock(mutex_);
    run = TakeLocked(pages, stay);
  }
  if (!run) return Full(bytes, "fit in no run of free pages");
  const std::uint64_t offset = run->first_page * kPageBytes;
  // Before PopulateAhead is told, which would do the same for the end of the block, but at the
  // lowest priority: whoever touches a page that is being moved waits.
  pages_.Prepare(run->region, offset, bytes);
  // Pages behind the block are touched in the background, so that the next block finds them
  // mapped. Brief blocks lie at the other end and are not worth that.
  if (ahead_ && stay == Stay::kLong) ahead_->Reach(run->region, offset + pages * kPageBytes);
  const RegionId region(first_region_.value() + static_cast<std::uint32_t>(run->region));
  return ArenaBlock(*this, region, offset, regions_[run->region].bytes().subspan(offset, bytes));
}

void RamArena::Free(const ArenaBlock& block) {
  const std::uint64_t pages = (block.bytes().size() + kPageBytes - 1) / kPageBytes;
  {
    MutexLock lock(mutex_);
    runs_.Give({block.region().value() - first_region_.value(),
                block.region_offset() / kPageBytes, pages});
  }
  memory_signal_.Notify();
}

// Not under the mutex: copying 64 MiB takes milliseconds, in which no other block could be taken
// or freed. The caller sees to it that nobody uses the block meanwhile.
bool RamArena::Slide(ArenaBlock& block, std::uint64_t offset) {
  FOREBAY_CHECK(offset % kPageBytes == 0 && offset < block.region_offset());
  const std::span<std::byte> from = block.bytes();
  const std::uint64_t pages = (from.size() + kPageBytes - 1) / kPageBytes;
  const std::size_t region = block.region().value() - first_region_.value();
  const std::uint64_t first = block.region_offset() / kPageBytes;
  // The two ranges may overlap. So the block takes the pages that it lacks at the lower end, and
  // afterwards gives back as many at the upper end; between the two it has both.
  const std::uint64_t new_first = offset / kPageBytes;
  const std::uint64_t changed = std::min(pages, first - new_first);
  {
    MutexLock lock(mutex_);
    if (!runs_.TakeAt({region, new_first, changed})) return false;
  }
  pages_.Prepare(region, offset, changed * kPageBytes);
  const std::span<std::byte> to = regions_[region].bytes().subspan(offset, from.size());
  std::memmove(to.data(), from.data(), from.size());
  // The block's destructor must free the new pages, not the old ones.
  block.region_offset_ = offset;
  block.bytes_ = to;
  MutexLock lock(mutex_);
  runs_.Give({region, first + pages - changed, changed});
  return true;
}

std::vector<FreeRun> RamArena::FreeRuns() const {
  std::vector<FreeRun> free;
  MutexLock lock(mutex_);
  for (std::size_t region = 0; region < regions_.size(); ++region) {
    for (const auto& [first_page, pages] : runs_.free_runs(region)) {
      free.push_back({.region = RegionId(first_region_.value() +
                                         static_cast<std::uint32_t>(region)),
                      .offset = first_page * kPageBytes,
                      .bytes = pages * kPageBytes});
    }
  }
  return free;
}

std::optional<PageRuns::Run> RamArena::TakeLocked(std::uint64_t pages, Stay stay) {
  if (stay == Stay::kBrief) return runs_.TakeHighest(pages);
  return lowest_first_ ? runs_.TakeLowest(pages) : runs_.Take(pages);
}

Error RamArena::Full(std::uint64_t bytes, const char* why) const {
  return Error(ErrorCode::kResourceExhausted,
               "ram arena of " + std::to_string(capacity_bytes_) + " bytes: " +
                   std::to_string(bytes) + " bytes " + why);
}

}  // namespace forebay::tier
