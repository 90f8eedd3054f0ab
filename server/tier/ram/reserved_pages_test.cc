// Regions in pages of 2 MiB that the site has reserved, and in others where too few are. The tests
// reserve a few pages (vm.nr_hugepages), which takes root, and give them back. Nothing else may run
// meanwhile, because another daemon would take them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "proto/contract/shared_mapping.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/refused_call_fixture.h"
#include "server/tier/ram/huge_pages.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/ram/shared_region.h"
#include "server/tier/testing/page_report_fixture.h"

namespace forebay::tier::reserved_pages_test {

using io::testing::Take;
using testing::HugeMappedBytes;

constexpr std::uint64_t kPage = kHugePageBytes;
constexpr const char* kFolder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";

class ReservedPagesTest : public ::testing::Test {
 protected:
  void SetUp() override { before_ = ReservedHugePages(); }
  void TearDown() override { Reserve(before_); }

  static void Reserve(std::uint64_t pages) {
    std::ofstream(std::string(kFolder) + "nr_hugepages") << pages;
  }
  static std::uint64_t Free() {
    std::uint64_t pages = 0;
    std::ifstream(std::string(kFolder) + "free_hugepages") >> pages;
    return pages;
  }
  // Sees to it that exactly `pages` are free. False: that is not possible here.
  bool HaveFree(std::uint64_t pages) const {
    const std::uint64_t in_use = ReservedHugePages() - Free();
    Reserve(in_use + pages);
    return Free() == pages;
  }
  static SharedRegion MakeRegion(std::uint64_t pages) {
    return Take(SharedRegion::Create("reserved-pages-test", pages * kPage, HugePageUse::kAuto));
  }

 private:
  std::uint64_t before_ = 0;
};

TEST_F(ReservedPagesTest, AreUsedAndGivenBack) {
  if (!HaveFree(4)) GTEST_SKIP() << "no pages can be reserved here (root only)";
  {
    const SharedRegion region = MakeRegion(4);
    ASSERT_TRUE(region.is_reserved());
    EXPECT_EQ(Free(), 0U) << "allocated at once";
    std::memset(region.bytes().data(), 0x5A, region.bytes().size());
    EXPECT_EQ(HugeMappedBytes(region.bytes()), 4 * kPage);
    // Clients rely on these seals.
    EXPECT_EQ(::fcntl(region.fd(), F_GET_SEALS),
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    EXPECT_FALSE(MapShared(region.fd(), 4 * kPage, PROT_READ | PROT_WRITE).has_value());
    const auto view = MapShared(region.fd(), 4 * kPage, PROT_READ);
    ASSERT_TRUE(view.has_value()) << view.error().ToString();
    EXPECT_EQ(std::memcmp(view->data(), region.bytes().data(), view->size()), 0);
    EXPECT_EQ(HugeMappedBytes(*view), 4 * kPage);
    EXPECT_EQ(::munmap(view->data(), view->size()), 0);
  }
  EXPECT_EQ(Free(), 4U);
}

// The touch of a page that is missing would be a SIGBUS: in a child process, which it would end.
TEST_F(ReservedPagesTest, NoPageIsMissingAfterTheSiteTookThePoolAway) {
  if (!HaveFree(4)) GTEST_SKIP() << "no pages can be reserved here (root only)";
  const SharedRegion region = MakeRegion(4);
  ASSERT_TRUE(region.is_reserved());
  Reserve(0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::memset(region.bytes().data(), 1, region.bytes().size());
    const auto view = MapShared(region.fd(), 4 * kPage, PROT_READ);
    if (!view.has_value()) ::_exit(1);
    ::_exit(std::memcmp(view->data(), region.bytes().data(), view->size()) == 0 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(ReservedPagesTest, TooFewAreLeftAlone) {
  if (!HaveFree(3)) GTEST_SKIP() << "no pages can be reserved here (root only)";
  const SharedRegion region = MakeRegion(4);
  EXPECT_FALSE(region.is_reserved());
  EXPECT_EQ(Free(), 3U);
  std::memset(region.bytes().data(), 1, region.bytes().size());
}

// Simulates a cgroup that limits huge pages: mmap promises pages that are then not given.
TEST_F(ReservedPagesTest, APageThatIsPromisedAndNotGivenIsNoSigbus) {
  if (!HaveFree(4)) GTEST_SKIP() << "no pages can be reserved here (root only)";
  const bool did_run = io::testing::RunWithRefusedCall(SYS_fallocate, ENOSPC, [] {
    const SharedRegion region = MakeRegion(4);
    EXPECT_FALSE(region.is_reserved());
    std::memset(region.bytes().data(), 1, region.bytes().size());
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
  EXPECT_EQ(Free(), 4U) << "the promise was given back";
}

TEST_F(ReservedPagesTest, AreNotTakenUnlessAskedFor) {
  if (!HaveFree(4)) GTEST_SKIP() << "no pages can be reserved here (root only)";
  for (const HugePageUse use : {HugePageUse::kOff, HugePageUse::kTransparent}) {
    EXPECT_FALSE(Take(SharedRegion::Create("reserved-pages-test", kPage, use)).is_reserved());
  }
  EXPECT_EQ(Free(), 4U);
}

TEST_F(ReservedPagesTest, AnArenaUsesThemForTheRegionsThatTheySufficeFor) {
  if (!HaveFree(5)) GTEST_SKIP() << "no pages can be reserved here (root only)";
  const auto arena = Take(RamArena::Create({.capacity_bytes = 12 * kPage,
                                            .region_bytes = 4 * kPage,
                                            .populate_ahead_bytes = 2 * kPage,
                                            .huge_pages = HugePageUse::kAuto}));
  EXPECT_EQ(arena->page_counts().reserved_bytes, 4 * kPage);
  std::vector<ArenaBlock> blocks;
  for (int i = 0; i < 12; ++i) {
    blocks.push_back(Take(arena->Allocate(kPage)));
    std::memset(blocks.back().bytes().data(), i, kPage);
  }
  arena->DrainPopulation();
  const PageCounts counts = arena->page_counts();
  EXPECT_EQ(counts.reserved_bytes, 4 * kPage);
  EXPECT_EQ(counts.transparent_bytes + counts.small_bytes, 8 * kPage);
}

}  // namespace forebay::tier::reserved_pages_test
