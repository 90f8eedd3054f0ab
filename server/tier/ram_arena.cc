#include "server/tier/ram_arena.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/tier/populate_ahead.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kPageBytes = limits::kIoAlignmentBytes;
constexpr std::uint64_t kHugePageBytes = SharedRegion::kHugePageBytes;
constexpr std::uint64_t kPagesPerHugePage = kHugePageBytes / kPageBytes;
static_assert(kHugePageBytes == PopulateAhead::kStepBytes, "what is withheld is never populated");

class PageRunArena final : public RamArena {
 public:
  // `options` with sizes of whole pages.
  PageRunArena(const Options& options, std::vector<SharedRegion> regions)
      : first_region_(options.first_region),
        total_bytes_(options.capacity_bytes),
        lowest_first_(options.lowest_first),
        regions_(std::move(regions)),
        withheld_(regions_.size()) {
    std::uint64_t left = total_bytes_;
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const std::uint64_t bytes = std::min(left, options.region_bytes);
      runs_.AddRegion(bytes / kPageBytes);
      untouched_.AddRegion(bytes / kHugePageBytes);
      left -= bytes;
    }
    if (options.populate_ahead_bytes == 0) return;
    ahead_ = std::make_unique<PopulateAhead>(regions_, options.populate_ahead_bytes);
    if (!options.populate_at_start) return;
    // Where the first block will lie.
    const PageRuns::Run first = *TakeLocked(1, Stay::kLong);
    runs_.Give(first);
    ReachLocked(first.region, first.first_page * kPageBytes);
  }

  // A block alive now would write into unmapped memory and call a dead arena.
  ~PageRunArena() override { FOREBAY_CHECK(used_bytes() == 0 && withheld_bytes() == 0); }

  std::uint64_t capacity_bytes() const override {
    std::lock_guard lock(mutex_);
    return total_bytes_ - withheld_bytes_;
  }
  std::uint64_t withheld_bytes() const override {
    std::lock_guard lock(mutex_);
    return withheld_bytes_;
  }
  std::uint64_t used_bytes() const override {
    std::lock_guard lock(mutex_);
    return total_bytes_ - withheld_bytes_ - runs_.free_pages() * kPageBytes;
  }
  std::uint64_t untouched_bytes() const override {
    std::lock_guard lock(mutex_);
    AskKernelLocked(untouched_.free_pages());
    return untouched_.free_pages() * kHugePageBytes;
  }
  std::uint64_t largest_free_bytes() const override {
    std::lock_guard lock(mutex_);
    return runs_.longest_run_pages() * kPageBytes;
  }
  std::span<const SharedRegion> regions() const override { return regions_; }
  void DrainPopulation() override {
    if (ahead_) ahead_->Drain();
  }
  std::uint64_t populated_ahead_bytes() const override {
    return ahead_ ? ahead_->populated_bytes() : 0;
  }

 protected:
  Result<ArenaBlock> DoAllocate(std::uint64_t bytes, Stay stay) override {
    if (bytes == 0) return Error(ErrorCode::kInvalidArgument, "arena block of 0 bytes");
    std::lock_guard lock(mutex_);
    if (bytes > total_bytes_ - withheld_bytes_) return FullLocked(bytes, "exceed its capacity");
    const std::uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
    const std::optional<PageRuns::Run> run = TakeLocked(pages, stay);
    if (!run) return FullLocked(bytes, "fit in no free run");
    const std::uint64_t offset = run->first_page * kPageBytes;
    TouchLocked(run->region, offset, offset + pages * kPageBytes);
    if (stay == Stay::kLong) ReachLocked(run->region, offset + pages * kPageBytes);
    const RegionId region(first_region_.value() + static_cast<std::uint32_t>(run->region));
    return MakeBlock(region, offset, regions_[run->region].bytes().subspan(offset, bytes));
  }

  void Free(const ArenaBlock& block) override {
    const std::uint64_t pages = (block.bytes().size() + kPageBytes - 1) / kPageBytes;
    std::lock_guard lock(mutex_);
    runs_.Give({block.region().value() - first_region_.value(),
                block.region_offset() / kPageBytes, pages});
  }

  Result<WithheldMemory> DoWithhold(std::uint64_t bytes) override {
    if (bytes == 0) return Error(ErrorCode::kInvalidArgument, "0 bytes cannot be withheld");
    std::lock_guard lock(mutex_);
    if (bytes > total_bytes_) return FullLocked(bytes, "to withhold exceed it");
    const std::uint64_t wanted = (bytes + kHugePageBytes - 1) / kHugePageBytes;
    AskKernelLocked(wanted);
    if (wanted > untouched_.free_pages()) {
      const std::string there = std::to_string(untouched_.free_pages() * kHugePageBytes);
      return FullLocked(bytes, ("to withhold, but only " + there + " were never touched").c_str());
    }
    std::vector<PageRuns::Run> taken;
    for (std::uint64_t left = wanted; left > 0; left -= taken.back().pages) {
      taken.push_back(*untouched_.TakeHighestUpTo(left));
    }
    for (PageRuns::Run& run : taken) {
      run.first_page *= kPagesPerHugePage;
      run.pages *= kPagesPerHugePage;
      runs_.TakeAt(run);
      withheld_[run.region].emplace(run.first_page, run.pages);
    }
    withheld_bytes_ += wanted * kHugePageBytes;
    return MakeWithheld(wanted * kHugePageBytes, std::move(taken));
  }

  void GiveBack(std::span<const PageRuns::Run> runs) override {
    std::lock_guard lock(mutex_);
    for (const PageRuns::Run& run : runs) {
      FOREBAY_CHECK(withheld_[run.region].erase(run.first_page) == 1);
      runs_.Give(run);
      untouched_.Give({run.region, run.first_page / kPagesPerHugePage,
                       run.pages / kPagesPerHugePage});
      withheld_bytes_ -= run.pages * kPageBytes;
    }
  }

 private:
  std::optional<PageRuns::Run> TakeLocked(std::uint64_t pages, Stay stay) {
    if (stay == Stay::kBrief) return runs_.TakeHighest(pages);
    return lowest_first_ ? runs_.TakeLowest(pages) : runs_.Take(pages);
  }
  // Has the pages behind `end_bytes` made, but none that are withheld.
  void ReachLocked(std::size_t region, std::uint64_t end_bytes) {
    if (!ahead_) return;
    const auto above = withheld_[region].lower_bound(end_bytes / kPageBytes);
    ahead_->Reach(region, end_bytes,
                  above == withheld_[region].end() ? regions_[region].bytes().size()
                                                   : above->first * kPageBytes);
  }

  void TouchLocked(std::size_t region, std::uint64_t begin_bytes, std::uint64_t end_bytes) const {
    untouched_.TakeWithin(region, begin_bytes / kHugePageBytes,
                          (end_bytes + kHugePageBytes - 1) / kHugePageBytes);
  }

  // Takes from untouched_ what this object does not see being made: ahead of blocks, by a thread,
  // and by processes that read where no block lies. At least until `wanted` of the highest pages
  // are known to be untouched.
  void AskKernelLocked(std::uint64_t wanted) const {
    std::uint64_t found = 0;
    for (std::size_t region = regions_.size(); region-- > 0 && found < wanted;) {
      if (ahead_) TouchLocked(region, 0, ahead_->end_bytes(region));
      const std::map<std::uint64_t, std::uint64_t> runs = untouched_.free_runs(region);
      for (auto run = runs.rbegin(); run != runs.rend() && found < wanted; ++run) {
        found += run->second - TakeMadeLocked(region, run->first, run->first + run->second);
      }
    }
  }
  // Of one run of untouched_; returns how many. Each of them is met once in the arena's life.
  std::uint64_t TakeMadeLocked(std::size_t region, std::uint64_t first, std::uint64_t end) const {
    std::uint64_t taken = 0;
    while (first < end) {
      first = regions_[region].FirstMade(first * kHugePageBytes, end * kHugePageBytes) /
              kHugePageBytes;
      if (first == end) break;
      untouched_.TakeAt({region, first, 1});
      ++taken;
      ++first;
    }
    return taken;
  }

  Error FullLocked(std::uint64_t bytes, const char* why) const {
    std::string withheld;
    if (withheld_bytes_ > 0) withheld = " (" + std::to_string(withheld_bytes_) + " more withheld)";
    return Error(ErrorCode::kResourceExhausted,
                 "ram arena of " + std::to_string(total_bytes_ - withheld_bytes_) + " bytes" +
                     withheld + ": " + std::to_string(bytes) + " bytes " + why);
  }

  const RegionId first_region_;
  const std::uint64_t total_bytes_;
  const bool lowest_first_;
  const std::vector<SharedRegion> regions_;
  mutable std::mutex mutex_;  // guards what follows
  PageRuns runs_;  // what is withheld counts as taken
  // Huge pages, within those of runs_ that are free, of which no block ever had a byte. Some may
  // have been made all the same: AskKernelLocked finds them.
  mutable PageRuns untouched_;
  std::uint64_t withheld_bytes_ = 0;
  std::vector<std::map<std::uint64_t, std::uint64_t>> withheld_;  // by region: first page -> pages
  std::unique_ptr<PopulateAhead> ahead_;  // null: not asked for; ends before its regions
};

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

ArenaBlock RamArena::MakeBlock(RegionId region, std::uint64_t offset,
                               std::span<std::byte> bytes) {
  ArenaBlock block;
  block.arena_ = this;
  block.region_ = region;
  block.region_offset_ = offset;
  block.bytes_ = bytes;
  return block;
}

WithheldMemory::WithheldMemory(WithheldMemory&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      runs_(std::exchange(other.runs_, {})) {}

WithheldMemory& WithheldMemory::operator=(WithheldMemory&& other) noexcept {
  if (this != &other) {
    if (arena_ != nullptr) arena_->GiveBack(runs_);
    arena_ = std::exchange(other.arena_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    runs_ = std::exchange(other.runs_, {});
  }
  return *this;
}

WithheldMemory::~WithheldMemory() {
  if (arena_ != nullptr) arena_->GiveBack(runs_);
}

WithheldMemory RamArena::MakeWithheld(std::uint64_t bytes, std::vector<PageRuns::Run> runs) {
  WithheldMemory withheld;
  withheld.arena_ = this;
  withheld.bytes_ = bytes;
  withheld.runs_ = std::move(runs);
  return withheld;
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
  std::vector<SharedRegion> regions;
  regions.reserve(count);
  for (std::uint64_t left = capacity_bytes; left > 0;) {
    const std::uint64_t bytes = std::min(left, region_bytes);
    FOREBAY_ASSIGN(SharedRegion region, SharedRegion::Create("forebay-ram", bytes));
    regions.push_back(std::move(region));
    left -= bytes;
  }
  Options whole = options;
  whole.capacity_bytes = capacity_bytes;
  whole.region_bytes = region_bytes;
  return std::make_unique<PageRunArena>(whole, std::move(regions));
}

}  // namespace forebay::tier
