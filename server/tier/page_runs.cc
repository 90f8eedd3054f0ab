#include "server/tier/page_runs.h"

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
  const auto found = by_length_.lower_bound({0, 0, pages});
  if (found == by_length_.end()) return std::nullopt;
  const Run run = *found;
  Erase(run);
  if (run.pages > pages) Insert({run.region, run.first_page + pages, run.pages - pages});
  free_pages_ -= pages;
  return Run{run.region, run.first_page, pages};
}

void PageRuns::Give(const Run& run) {
  FOREBAY_CHECK(run.region < regions_.size() && run.pages > 0);
  const Region& region = regions_[run.region];
  FOREBAY_CHECK(run.first_page <= region.pages &&
                run.pages <= region.pages - run.first_page);
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
