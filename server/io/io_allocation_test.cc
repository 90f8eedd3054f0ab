// The hot path allocates nothing in steady state. Replaces operator new to count, except under
// sanitizers, whose own operator new must stay; there the test is skipped.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "server/io/queues/thread_backend.h"
#include "server/io/queues/uring_backend.h"
#include "server/io/testing/io_test_fixture.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FOREBAY_TEST_IS_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FOREBAY_TEST_IS_SANITIZED 1
#endif

namespace {
std::atomic<std::uint64_t> allocation_count{0};
#if defined(FOREBAY_TEST_IS_SANITIZED)
constexpr bool kCounts = false;
#else
constexpr bool kCounts = true;
#endif
}  // namespace

#if !defined(FOREBAY_TEST_IS_SANITIZED)
void* operator new(std::size_t bytes) {
  ++allocation_count;
  if (void* memory = std::malloc(bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace forebay::io::testing {
namespace {

// Allocations of 200 rounds of 32 reads, after some rounds to warm up.
std::uint64_t AllocationsOf(IoBackend& backend) {
  constexpr std::size_t kFileBytes = 32UL * 4'096;
  const TempFolder folder;
  const auto directory = Take(backend.OpenDirectory(folder.path()));
  const auto queue = Take(backend.CreateQueue({32}));
  FOREBAY_EXPECT_OK(WriteFully(*queue, *Take(directory->Open("a", OpenMode::kCreate)), 0,
                               Pattern(kFileBytes)));
  const auto file = Take(directory->Open("a", OpenMode::kRead));
  std::vector<std::byte> buffer(kFileBytes);
  const std::span<std::byte> region = buffer;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < 32; ++i) {
    batch.push_back(ReadOf(*file, i * 4'096, region.subspan(i * 4'096, 4'096), i));
  }
  std::vector<Completion> completions;
  completions.reserve(64);
  std::uint64_t before = 0;
  for (int round = 0; round < 210; ++round) {
    if (round == 10) before = allocation_count;
    EXPECT_TRUE(queue->Submit(batch).has_value());
    completions.clear();
    while (queue->in_flight() > 0) queue->Wait(queue->in_flight(), completions, 10'000);
    EXPECT_EQ(completions.size(), 32U);
  }
  return allocation_count - before;
}

TEST(IoAllocationTest, UringHotPathAllocatesNothing) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer owns operator new";
  if (!IsIoUringAvailable()) GTEST_SKIP() << CheckIoUring().error().ToString();
  EXPECT_EQ(AllocationsOf(*Take(UringBackend::Create())), 0U);
}

TEST(IoAllocationTest, ThreadHotPathAllocatesNothing) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer owns operator new";
  EXPECT_EQ(AllocationsOf(*Take(ThreadBackend::Create())), 0U);
}

TEST(IoAllocationTest, TheCounterCounts) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer owns operator new";
  const std::uint64_t before = allocation_count;
  const std::vector<std::byte> bytes = Pattern(1'000);
  EXPECT_EQ(allocation_count - before, 1U);
}

}  // namespace
}  // namespace forebay::io::testing
