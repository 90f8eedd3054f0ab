// PageRuns: which pages of several regions are free. This is the logic of RamArena's allocator,
// without the memory. Free pages are kept as runs, in two indexes: by region and first page, to
// join neighbours; and by length, to find the best fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace forebay::tier {

// Invariant: two free runs of a region never touch; they are joined at once. Calls take O(log runs)
// unless their comment says otherwise. Not thread-safe.
class PageRuns {
 public:
  struct Run {
    std::size_t region = 0;
    std::uint64_t first_page = 0;
    std::uint64_t pages = 0;
  };

  // Adds the next region (index 0, 1, ...), all of it free. `pages` is at least 1.
  void AddRegion(std::uint64_t pages);
  // Takes `pages` (at least 1) from the start of the best fit: the shortest run that is long enough
  // and, of equally long ones, the lowest. nullopt: no run is long enough.
  std::optional<Run> Take(std::uint64_t pages);
  // Takes `pages` from the start of the lowest run that is long enough. O(runs).
  std::optional<Run> TakeLowest(std::uint64_t pages);
  // Takes `pages` from the end of the highest run that is long enough. O(runs).
  std::optional<Run> TakeHighest(std::uint64_t pages);
  // Takes exactly these pages. False: not all of them are free.
  bool TakeAt(const Run& run);
  // Frees pages that the functions above have taken. Freeing pages that are free already is a bug
  // (checked).
  void Give(const Run& run);

  std::uint64_t free_pages() const { return free_pages_; }
  std::uint64_t longest_run_pages() const;
  // The free runs of a region: first page -> pages.
  const std::map<std::uint64_t, std::uint64_t>& free_runs(std::size_t region) const {
    return regions_[region].runs;
  }
  std::size_t run_count() const { return by_length_.size(); }

 private:
  struct Longer {
    bool operator()(const Run& a, const Run& b) const {
      if (a.pages != b.pages) return a.pages < b.pages;
      if (a.region != b.region) return a.region < b.region;
      return a.first_page < b.first_page;
    }
  };
  // Takes `pages` at `first_page`, which lie within the free run `run`.
  Run TakeFrom(const Run& run, std::uint64_t first_page, std::uint64_t pages);
  void Insert(const Run& run);
  void Erase(const Run& run);

  struct Region {
    std::uint64_t pages = 0;
    std::map<std::uint64_t, std::uint64_t> runs;  // first page -> pages
  };
  std::vector<Region> regions_;
  std::set<Run, Longer> by_length_;
  std::uint64_t free_pages_ = 0;
};

}  // namespace forebay::tier
