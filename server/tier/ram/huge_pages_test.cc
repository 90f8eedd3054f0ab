// Runs of memory become huge pages once, keep their bytes, and stay small where the kernel refuses.
// /proc/self/smaps says which pages are huge.
#include "server/tier/ram/huge_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/refused_call_fixture.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/testing/page_report_fixture.h"

namespace forebay::tier::huge_pages_test {

using ::testing::HasSubstr;
using io::testing::RunWithRefusedCall;
using io::testing::TempFolder;
using testing::HugeMappedBytes;
using testing::MappedBytes;

constexpr std::uint64_t kPage = kHugePageBytes;

std::vector<SharedRegion> OneRegion(std::uint64_t bytes, HugePageUse use) {
  std::vector<SharedRegion> regions;
  regions.push_back(io::testing::Take(SharedRegion::Create("huge-pages-test", bytes, use)));
  return regions;
}

// Eight pages, prepared by nobody so far.
class HugePagesTest : public ::testing::Test {
 protected:
  std::span<std::byte> bytes() const { return regions_[0].bytes(); }

  const std::vector<SharedRegion> regions_ = OneRegion(8 * kPage, HugePageUse::kTransparent);
  HugePages pages_{regions_, HugePageUse::kTransparent};
};

// Runs only where the kernel makes huge pages.
class MadeHugePagesTest : public HugePagesTest {
 protected:
  void SetUp() override {
    const auto regions = OneRegion(kPage, HugePageUse::kTransparent);
    HugePages pages(regions, HugePageUse::kTransparent);
    pages.Prepare(0, 0, 1);
    if (pages.counts().small_bytes > 0) GTEST_SKIP() << "this kernel makes no huge pages";
  }
};

TEST_F(MadeHugePagesTest, EveryRunWithAByteOfTheRangeIsOneHugePage) {
  pages_.Prepare(0, 2 * kPage - 1, kPage + 2);  // the last byte of run 1 to the first of run 3
  EXPECT_EQ(HugeMappedBytes(bytes()), 3 * kPage);
  EXPECT_EQ(MappedBytes(bytes(), {"Rss:"}), 3 * kPage) << "no other memory exists";
  EXPECT_EQ(pages_.counts().transparent_bytes, 3 * kPage);
  EXPECT_EQ(pages_.counts().small_bytes, 0U);
}

TEST_F(MadeHugePagesTest, ARunIsPreparedOnce) {
  pages_.Prepare(0, kPage, kPage);
  pages_.Prepare(0, 0, 4 * kPage);
  pages_.Prepare(0, 0, 4 * kPage);
  EXPECT_EQ(pages_.counts().transparent_bytes, 4 * kPage);
  EXPECT_EQ(HugeMappedBytes(bytes()), 4 * kPage);
  pages_.Prepare(0, 5 * kPage, 0);
  EXPECT_EQ(pages_.counts().transparent_bytes, 4 * kPage) << "a range of no bytes";
}

TEST_F(MadeHugePagesTest, BytesKeepTheirValueWhileOthersWrite) {
  std::memset(bytes().data(), 0x5A, 3 * kPage);
  std::atomic<bool> has_begun = false;
  std::atomic<bool> is_done = false;
  std::uint64_t written = 0;
  std::thread writer([&] {
    // Counts up in the first eight bytes of the small page that lies in the middle of each run.
    while (!is_done) {
      ++written;
      for (std::uint64_t run = 0; run < 8; ++run) {
        std::memcpy(&bytes()[run * kPage + kPage / 2], &written, sizeof written);
      }
      has_begun = true;
    }
  });
  while (!has_begun) std::this_thread::yield();
  pages_.Prepare(0, 0, 8 * kPage);
  is_done = true;
  writer.join();
  for (std::uint64_t run = 0; run < 8; ++run) {
    std::uint64_t found = 0;
    std::memcpy(&found, &bytes()[run * kPage + kPage / 2], sizeof found);
    EXPECT_EQ(found, written);
  }
  for (std::uint64_t at = 0; at < 3 * kPage; ++at) {
    const bool is_counter = at % kPage - kPage / 2 < sizeof written;
    if (!is_counter) {
      ASSERT_EQ(bytes()[at], std::byte{0x5A}) << at;
    }
  }
}

TEST_F(MadeHugePagesTest, AClientMapsThemAsHugePagesToo) {
  std::memset(bytes().data(), 1, kPage);  // small pages, before they become a huge one
  pages_.Prepare(0, 0, 8 * kPage);
  const auto view = MapShared(regions_[0].fd(), 8 * kPage, PROT_READ);
  ASSERT_TRUE(view.has_value());
  for (std::uint64_t at = 0; at < view->size(); at += kPage) {
    EXPECT_EQ((*view)[at], at == 0 ? std::byte{1} : std::byte{0});
  }
  EXPECT_EQ(HugeMappedBytes(*view), 8 * kPage);
  ::munmap(view->data(), view->size());
}

TEST_F(MadeHugePagesTest, AnArenaGivesOutHugePagesAndMovesBlocksIntoThem) {
  const auto arena = io::testing::Take(RamArena::Create({.capacity_bytes = 8 * kPage,
                                                         .region_bytes = 8 * kPage}));
  auto first = arena->Allocate(3 * kPage);
  auto second = arena->Allocate(4096, Stay::kBrief);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(arena->page_counts().transparent_bytes, 4 * kPage);
  EXPECT_EQ(HugeMappedBytes(arena->regions()[0].bytes()), 4 * kPage);
  std::memset(second->bytes().data(), 7, 4096);
  ASSERT_TRUE(arena->Slide(*second, 5 * kPage));
  EXPECT_EQ(second->bytes()[4095], std::byte{7});
  EXPECT_EQ(arena->page_counts().transparent_bytes, 5 * kPage);
}

TEST_F(HugePagesTest, OffLeavesSmallPages) {
  const auto regions = OneRegion(4 * kPage, HugePageUse::kOff);
  HugePages pages(regions, HugePageUse::kOff);
  pages.Prepare(0, 0, 4 * kPage);
  std::memset(regions[0].bytes().data(), 1, 4 * kPage);
  EXPECT_EQ(HugeMappedBytes(regions[0].bytes()), 0U);
  EXPECT_EQ(pages.counts().small_bytes, 4 * kPage);
  EXPECT_EQ(pages.counts().refusal_errno, 0);
  EXPECT_EQ(SmallPagesAdvice(pages.counts(), HugePageUse::kOff), "daemon.huge_pages is off");
}

// Kernels before 6.1 answer EINVAL to an advice that they do not know.
TEST_F(HugePagesTest, AKernelThatRefusesIsNotAskedForEver) {
  if (testing::MakesHugePagesByItself()) GTEST_SKIP() << "this kernel needs not be asked";
  const bool did_run = RunWithRefusedCall(SYS_madvise, EINVAL, [&] {
    pages_.Prepare(0, 0, 8 * kPage);
    EXPECT_EQ(pages_.counts().small_bytes, 8 * kPage);
    EXPECT_EQ(pages_.counts().transparent_bytes, 0U);
    EXPECT_EQ(pages_.counts().refusal_errno, EINVAL);
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
  const auto more = OneRegion(10 * kPage, HugePageUse::kTransparent);
  HugePages pages(more, HugePageUse::kTransparent);
  RunWithRefusedCall(SYS_madvise, EINVAL, [&] { pages.Prepare(0, 0, 8 * kPage); });
  pages.Prepare(0, 8 * kPage, kPage);  // on this thread, the kernel would do it
  EXPECT_EQ(pages.counts().small_bytes, 9 * kPage);
  std::memset(more[0].bytes().data(), 1, 9 * kPage);
  EXPECT_EQ(HugeMappedBytes(more[0].bytes()), 0U);
}

TEST_F(MadeHugePagesTest, ASuccessMakesUpForRefusals) {
  if (testing::MakesHugePagesByItself()) GTEST_SKIP() << "this kernel needs not be asked";
  for (const std::uint64_t half : {0U, 1U}) {
    const bool did_run = RunWithRefusedCall(SYS_madvise, ENOMEM, [&] {
      pages_.Prepare(0, half * 4 * kPage, 3 * kPage);
    });
    if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
    pages_.Prepare(0, half * 4 * kPage, 4 * kPage);
  }
  EXPECT_EQ(pages_.counts().small_bytes, 6 * kPage);
  EXPECT_EQ(pages_.counts().transparent_bytes, 2 * kPage);
  EXPECT_EQ(pages_.counts().refusal_errno, ENOMEM);
}

// A run is prepared ahead while a thread that was given memory in it fills that already.
TEST_F(HugePagesTest, ARefusedRunThatIsBeingFilledCountsAsSmall) {
  if (testing::MakesHugePagesByItself()) GTEST_SKIP() << "this kernel needs not be asked";
  const bool did_run = RunWithRefusedCall(SYS_madvise, ENOMEM, [&] {
    std::memset(&bytes()[kPage / 2], 1, 2 * kPage);  // to the middle of run 2
    pages_.Prepare(0, 0, 3 * kPage);
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
  EXPECT_EQ(pages_.counts().small_bytes, 3 * kPage);
  EXPECT_EQ(pages_.counts().transparent_bytes, 0U);
}

class HugePagesSettingsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::string file = folder_.path() + path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << text;
  }
  TempFolder folder_;
};

TEST_F(HugePagesSettingsTest, TheAdviceNamesTheSettingThatIsInEffect) {
  Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise never [deny] force\n");
  const PageCounts counts = {.small_bytes = 1, .refusal_errno = EINVAL};
  EXPECT_EQ(SmallPagesAdvice(counts, HugePageUse::kAuto, folder_.path()),
            "the kernel refused transparent huge pages (Invalid argument; shmem_enabled is "
            "'deny'): set it to 'advise' or reserve pages with vm.nr_hugepages "
            "(docs/huge_pages.md)");
  EXPECT_EQ(SmallPagesAdvice({.transparent_bytes = 1}, HugePageUse::kAuto, folder_.path()), "");
}

TEST_F(HugePagesSettingsTest, AKernelWithoutHugePagesHasNone) {
  EXPECT_EQ(ReservedHugePages(folder_.path()), 0U);
  EXPECT_THAT(SmallPagesAdvice({.small_bytes = 1}, HugePageUse::kAuto, folder_.path()),
              HasSubstr("shmem_enabled is 'unknown'"));
  Write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
  EXPECT_EQ(ReservedHugePages(folder_.path()), 512U);
}

TEST_F(HugePagesSettingsTest, PagesThatWerePromisedAreNotFree) {
  const std::string pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  EXPECT_EQ(FreeHugePages(folder_.path()), 0U);
  Write(pages + "free_hugepages", "512\n");
  EXPECT_EQ(FreeHugePages(folder_.path()), 512U);
  Write(pages + "resv_hugepages", "12\n");
  EXPECT_EQ(FreeHugePages(folder_.path()), 500U);
  // The two files are read one after the other, so the second number may have grown.
  Write(pages + "resv_hugepages", "513\n");
  EXPECT_EQ(FreeHugePages(folder_.path()), 0U);
}

}  // namespace forebay::tier::huge_pages_test
