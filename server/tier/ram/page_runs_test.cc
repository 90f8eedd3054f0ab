// Random allocations and frees, compared with a model that has one flag per page.
#include "server/tier/ram/page_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace forebay::tier {
namespace {

// The model: one flag a page, searched from the start.
class PageModel {
 public:
  explicit PageModel(std::vector<std::uint64_t> regions) {
    for (const std::uint64_t pages : regions) used_.emplace_back(pages, false);
  }
  struct Best {
    std::size_t region = 0;
    std::uint64_t first = 0, length = 0;
  };
  enum class From { kShortest, kLowest, kHighest };
  // Where `pages` start: at the start of the shortest run that is long enough (of equals the
  // lowest) or of the lowest, or at the end of the highest.
  std::optional<Best> Find(std::uint64_t pages, From from) const {
    std::optional<Best> best;
    ForEachRun([&](const Best& run) {
      if (run.length < pages) return;
      const bool better = from == From::kHighest ||
                          (from == From::kShortest && best && run.length < best->length);
      if (!best || better) best = run;
    });
    if (best && from == From::kHighest) best->first += best->length - pages;
    return best;
  }
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    for (std::size_t region = 0; region < used_.size(); ++region) {
      const std::vector<bool>& pages = used_[region];
      for (std::size_t i = 0; i < pages.size();) {
        std::size_t end = i;
        while (end < pages.size() && !pages[end]) ++end;
        if (end > i) visit(Best{region, i, end - i});
        i = std::max(end, i + 1);
      }
    }
  }
  void Set(const PageRuns::Run& run, bool used) {
    for (std::uint64_t i = 0; i < run.pages; ++i) {
      ASSERT_NE(used_[run.region][run.first_page + i], used);
      used_[run.region][run.first_page + i] = used;
    }
  }

 private:
  std::vector<std::vector<bool>> used_;
};

TEST(PageRuns, AgreesWithAModelOfOneFlagPerPage) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::vector<std::uint64_t> regions = {64, 100, 1, 33};
    PageRuns runs;
    for (const std::uint64_t pages : regions) runs.AddRegion(pages);
    PageModel model(regions);
    std::vector<PageRuns::Run> held;
    for (int step = 0; step < 1500; ++step) {
      if (!held.empty() && random() % 2 == 0) {
        std::swap(held[random() % held.size()], held.back());
        runs.Give(held.back());
        model.Set(held.back(), false);
        held.pop_back();
      } else {
        const std::uint64_t pages = 1 + random() % (random() % 8 == 0 ? 64 : 9);
        using From = PageModel::From;
        const auto from = static_cast<From>(random() % 3);
        const auto expected = model.Find(pages, from);
        const auto taken = from == From::kShortest ? runs.Take(pages)
                           : from == From::kLowest ? runs.TakeLowest(pages)
                                                   : runs.TakeHighest(pages);
        ASSERT_EQ(taken.has_value(), expected.has_value());
        if (taken) {
          ASSERT_EQ(taken->region, expected->region);
          ASSERT_EQ(taken->first_page, expected->first);
          ASSERT_EQ(taken->pages, pages);
          model.Set(*taken, true);
          held.push_back(*taken);
        }
      }
      std::uint64_t free_pages = 0, longest = 0, count = 0;
      model.ForEachRun([&](const PageModel::Best& run) {
        free_pages += run.length;
        longest = std::max(longest, run.length);
        ++count;
      });
      ASSERT_EQ(runs.free_pages(), free_pages);
      ASSERT_EQ(runs.longest_run_pages(), longest);
      ASSERT_EQ(runs.run_count(), count);  // equal only where neighbours are joined
    }
  }
}

TEST(PageRunsDeathTest, GivingBackTwiceIsFound) {
  PageRuns runs;
  runs.AddRegion(10);
  const auto run = runs.Take(4);
  ASSERT_TRUE(run.has_value());
  runs.Give(*run);
  EXPECT_DEATH(runs.Give(*run), "CHECK failed");
  EXPECT_DEATH(runs.Give({0, 8, 3}), "CHECK failed");
  EXPECT_DEATH(runs.Give({1, 0, 1}), "CHECK failed");
}

TEST(PageRunsTest, TakesTheseVeryPagesFromTheMiddleOfARun) {
  PageRuns runs;
  runs.AddRegion(10);
  EXPECT_TRUE(runs.TakeAt({.region = 0, .first_page = 3, .pages = 4}));
  EXPECT_FALSE(runs.TakeAt({.region = 0, .first_page = 2, .pages = 2})) << "page 3 is taken";
  EXPECT_FALSE(runs.TakeAt({.region = 0, .first_page = 6, .pages = 2})) << "page 6 is taken";
  EXPECT_EQ(runs.free_pages(), 6U);
  EXPECT_EQ(runs.run_count(), 2U);
  EXPECT_TRUE(runs.TakeAt({.region = 0, .first_page = 0, .pages = 3}));
  EXPECT_TRUE(runs.TakeAt({.region = 0, .first_page = 8, .pages = 2}));
  EXPECT_EQ(runs.longest_run_pages(), 1U);
  runs.Give({.region = 0, .first_page = 3, .pages = 4});
  EXPECT_EQ(runs.longest_run_pages(), 5U);
}

}  // namespace
}  // namespace forebay::tier
