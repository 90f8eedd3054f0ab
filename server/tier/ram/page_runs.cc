// Every change goes through Insert and Erase, which keep the two indexes alike: each free run is in
// the map of its region and in by_length_. The checks stay on in release builds, because pages that
// are given out twice would mean wrong bytes in a sample.
#include "server/tier/ram/page_runs.h"

#include <iterator>

#include "proto/contract/check.h"

namespace forebay::tier {

void PageRuns::AddRegion(std::uint64_t pages) {
  FOREBAY_CHECK(pages > 0);
  regions_.push_back({pages, {}});
  Insert({regions_.size() - 1, 0, pages});
  free_pages_ += pages;
}

std::optional<PageRuns::Run> PageRuns::Take(std::uint64_t pages) {
  FOREBAY_CHECK(pages > 0);
  // by_length_ sorts by length, then address, so this is the lowest of the shortest runs that fit.
  const auto found = by_length_.lower_bound({0, 0, pages});
  if (found == by_length_.end()) return std::nullopt;
  const Run run = *found;
  return TakeFrom(run, run.first_page, pages);
}

std::optional<PageRuns::Run> PageRuns::TakeLowest(std::uint64_t pages) {
  FOREBAY_CHECK(pages > 0);
  for (std::size_t region = 0; region < regions_.size(); ++region) {
    for (const auto& [first_page, length] : regions_[region].runs) {
      if (length >= pages) return TakeFrom({region, first_page, length}, first_page, pages);
    }
  }
  return std::nullopt;
}

std::optional<PageRuns::Run> PageRuns::TakeHighest(std::uint64_t pages) {
  FOREBAY_CHECK(pages > 0);
  for (std::size_t region = regions_.size(); region-- > 0;) {
    const std::map<std::uint64_t, std::uint64_t>& runs = regions_[region].runs;
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      if (run->second < pages) continue;
      return TakeFrom({region, run->first, run->second}, run->first + run->second - pages, pages);
    }
  }
  return std::nullopt;
}

bool PageRuns::TakeAt(const Run& run) {
  FOREBAY_CHECK(run.region < regions_.size() && run.pages > 0);
  const std::map<std::uint64_t, std::uint64_t>& runs = regions_[run.region].runs;
  // The free run that contains the first page is the last one that does not begin after it.
  const auto after = runs.upper_bound(run.first_page);
  if (after == runs.begin()) return false;
  const auto [first_page, pages] = *std::prev(after);
  const std::uint64_t before = run.first_page - first_page;
  if (before > pages || run.pages > pages - before) return false;  // without overflow
  TakeFrom({run.region, first_page, pages}, run.first_page, run.pages);
  return true;
}

PageRuns::Run PageRuns::TakeFrom(const Run& run, std::uint64_t first_page, std::uint64_t pages) {
  // What is left of the run on either side becomes a run of its own.
  const std::uint64_t before = first_page - run.first_page;
  const std::uint64_t after = run.pages - pages - before;
  Erase(run);
  if (before > 0) Insert({run.region, run.first_page, before});
  if (after > 0) Insert({run.region, first_page + pages, after});
  free_pages_ -= pages;
  return {run.region, first_page, pages};
}

void PageRuns::Give(const Run& run) {
  FOREBAY_CHECK(run.region < regions_.size() && run.pages > 0);
  const Region& region = regions_[run.region];
  FOREBAY_CHECK(run.first_page <= region.pages &&
                run.pages <= region.pages - run.first_page);
  // Neither the next free run nor the one before may overlap the pages that are freed. A run that
  // touches them is joined with them.
  Run joined = run;
  const auto after = region.runs.lower_bound(run.first_page);
  if (after != region.runs.end()) {
    FOREBAY_CHECK(after->first >= run.first_page + run.pages);
  }
  std::optional<Run> left;
  std::optional<Run> right;
  if (after != region.runs.begin()) {
    const auto before = std::prev(after);
    FOREBAY_CHECK(before->first + before->second <= run.first_page);
    if (before->first + before->second == run.first_page) {
      left = Run{run.region, before->first, before->second};
    }
  }
  if (after != region.runs.end() && after->first == run.first_page + run.pages) {
    right = Run{run.region, after->first, after->second};
  }
  if (left) {
    Erase(*left);
    joined.first_page = left->first_page;
    joined.pages += left->pages;
  }
  if (right) {
    Erase(*right);
    joined.pages += right->pages;
  }
  Insert(joined);
  free_pages_ += run.pages;
}

std::uint64_t PageRuns::longest_run_pages() const {
  return by_length_.empty() ? 0 : by_length_.rbegin()->pages;
}

void PageRuns::Insert(const Run& run) {
  regions_[run.region].runs.emplace(run.first_page, run.pages);
  by_length_.insert(run);
}

void PageRuns::Erase(const Run& run) {
  regions_[run.region].runs.erase(run.first_page);
  by_length_.erase(run);
}

}  // namespace forebay::tier
