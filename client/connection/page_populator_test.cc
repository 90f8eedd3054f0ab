#include "client/connection/page_populator.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::internal {
namespace {

constexpr std::uint64_t kWindow = PagePopulator::kWindowBytes;
constexpr std::uint64_t kRegionBytes = 5 * kWindow + 4096;  // the last window is a page

// Two sealed regions with bytes in every page.
class PagePopulatorTest : public ::testing::Test {
 protected:
  PagePopulatorTest() : regions_(std::make_shared<RegionMap>()) {
    for (std::uint32_t id = 0; id < 2; ++id) {
      const UniqueFd memfd(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      const std::vector<char> bytes(kRegionBytes, 'x');
      EXPECT_EQ(pwrite(memfd.get(), bytes.data(), bytes.size(), 0),
                static_cast<ssize_t>(bytes.size()));
      EXPECT_EQ(fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
      RegionEntry entry;
      entry.id = id;
      entry.bytes = kRegionBytes;
      EXPECT_TRUE(regions_->Add(entry, memfd).has_value());
    }
  }

  void Want(std::uint32_t region, std::uint64_t offset, std::uint64_t length) {
    populator().Want({.region = region, .offset = offset, .length = length});
    populator().Drain();
  }
  PagePopulator& populator() {
    if (!populator_) populator_ = std::make_unique<PagePopulator>(regions_);
    return *populator_;
  }
  static bool KernelCan() {
    void* const memory = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool can = madvise(memory, 4096, 22) == 0;
    munmap(memory, 4096);
    return can;
  }
  // Page faults that reading a byte of each page of a range takes. Instrumented reads, and calls
  // between them, would fault in the sanitizer's own memory too.
  __attribute__((no_sanitize("address", "thread"))) std::int64_t FaultsOfReading(
      std::uint32_t region, std::uint64_t offset, std::uint64_t length) const {
    const std::byte* const bytes =
        regions_->Find({.region = region, .offset = offset, .length = length});
    rusage before{};
    rusage after{};
    std::uint64_t wrong = 0;
    getrusage(RUSAGE_THREAD, &before);
    for (std::uint64_t at = 0; at < length; at += 4096) {
      const std::byte byte = *static_cast<const volatile std::byte*>(bytes + at);
      if (byte != std::byte{'x'}) ++wrong;
    }
    getrusage(RUSAGE_THREAD, &after);
    EXPECT_EQ(wrong, 0U);
    return after.ru_minflt - before.ru_minflt;
  }

  std::shared_ptr<RegionMap> regions_;
  std::unique_ptr<PagePopulator> populator_;
};

TEST_F(PagePopulatorTest, WhatWasWantedTakesNoPageFaults) {
  if (!KernelCan()) GTEST_SKIP() << "this kernel cannot populate";
  Want(1, 0, 2 * kWindow);
  EXPECT_EQ(populator().windows(), 2U);
  EXPECT_LE(FaultsOfReading(1, 0, 2 * kWindow), 2);
  EXPECT_GE(FaultsOfReading(1, 2 * kWindow, 2 * kWindow), 2) << "the rest is as it was";
}

TEST_F(PagePopulatorTest, AWindowIsPopulatedOnce) {
  if (!KernelCan()) GTEST_SKIP() << "this kernel cannot populate";
  for (int i = 0; i < 3; ++i) Want(0, 100, 4096);
  EXPECT_EQ(populator().windows(), 1U);
  Want(0, kWindow - 1, 1);
  EXPECT_EQ(populator().windows(), 1U);
  Want(0, kWindow - 1, 2);
  EXPECT_EQ(populator().windows(), 2U);
  Want(1, 100, 4096);
  EXPECT_EQ(populator().windows(), 3U) << "regions have windows of their own";
}

TEST_F(PagePopulatorTest, ASpanTakesEveryWindowItTouchesUpToTheRegionsEnd) {
  if (!KernelCan()) GTEST_SKIP() << "this kernel cannot populate";
  Want(0, 0, kRegionBytes);
  EXPECT_EQ(populator().windows(), 6U);
  EXPECT_LE(FaultsOfReading(0, 0, kRegionBytes), 2);
}

TEST_F(PagePopulatorTest, NoBytesWantNothing) {
  Want(0, kRegionBytes, 0);
  EXPECT_EQ(populator().windows(), 0U);
}

TEST_F(PagePopulatorTest, MayBeDestroyedWithWorkLeft) {
  for (std::uint64_t window = 0; window < 5; ++window) {
    populator().Want({.region = 0, .offset = window * kWindow, .length = 1});
  }
  populator_.reset();
  EXPECT_NE(regions_->Find({.region = 0, .offset = 0, .length = 1}), nullptr);
}

}  // namespace
}  // namespace forebay::internal
