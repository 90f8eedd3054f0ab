// SelectBackend on kernels that allow and that refuse io_uring (by seccomp); AlignedBuffer; clocks.
#include "server/io/backend_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>

#include "proto/contract/limits.h"
#include "server/io/aligned_buffer.h"
#include "server/io/clock.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/queues/uring_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/refused_call_fixture.h"

namespace forebay::io::testing {
namespace {

using ::testing::HasSubstr;

void ExpectWritesAndReads(IoBackend& backend) {
  const TempFolder folder;
  const std::unique_ptr<Directory> directory = Take(backend.OpenDirectory(folder.path()));
  const std::unique_ptr<IoQueue> queue = Take(backend.CreateQueue({4}));
  const std::vector<std::byte> bytes = Pattern(10'000);
  FOREBAY_EXPECT_OK(
      WriteFully(*queue, *Take(directory->Open("a", OpenMode::kCreate)), 0, bytes));
  std::vector<std::byte> read(10'000);
  FOREBAY_EXPECT_OK(ReadFully(*queue, *Take(directory->Open("a", OpenMode::kRead)), 0, read));
  EXPECT_EQ(read, bytes);
}

TEST(BackendSelectionTest, PrefersIoUringWhereItRuns) {
  if (!IsIoUringAvailable()) GTEST_SKIP() << CheckIoUring().error().ToString();
  const SelectedBackend selected = Take(SelectBackend(BackendChoice::kAutomatic));
  EXPECT_EQ(selected.backend->name(), "io_uring");
  EXPECT_FALSE(selected.fallback_reason.has_value());
  EXPECT_EQ(Take(SelectBackend(BackendChoice::kIoUring)).backend->name(), "io_uring");
}

TEST(BackendSelectionTest, ThreadsOnRequestAreNoFallback) {
  const SelectedBackend selected = Take(SelectBackend(BackendChoice::kThreads));
  EXPECT_EQ(selected.backend->name(), "threads");
  EXPECT_FALSE(selected.fallback_reason.has_value());
}

class RefusedIoUringTest : public ::testing::TestWithParam<int> {};

TEST_P(RefusedIoUringTest, FallsBackToThreadsAndSaysWhy) {
  const auto refusal = static_cast<unsigned>(GetParam());
  const bool did_run = RunWithRefusedCall(SYS_io_uring_setup, refusal, [&] {
    EXPECT_FALSE(IsIoUringAvailable());
    const SelectedBackend selected = Take(SelectBackend(BackendChoice::kAutomatic));
    EXPECT_EQ(selected.backend->name(), "threads");
    ASSERT_TRUE(selected.fallback_reason.has_value());
    EXPECT_EQ(selected.fallback_reason->system_errno(), GetParam());
    EXPECT_THAT(selected.fallback_reason->message(), HasSubstr("io_uring is refused"));
    ExpectWritesAndReads(*selected.backend);
    EXPECT_EQ(ErrnoOf(SelectBackend(BackendChoice::kIoUring)), GetParam());
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
}

INSTANTIATE_TEST_SUITE_P(Errnos, RefusedIoUringTest, ::testing::Values(ENOSYS, EPERM, ENOMEM));

TEST(BackendSelectionTest, RefusalOfThreadsIsAnErrorNotACrash) {
  const bool did_run = RunWithRefusedCall(SYS_clone3, EAGAIN, [] {
    const auto backend = ThreadBackend::Create();
    EXPECT_EQ(CodeOf(backend), ErrorCode::kResourceExhausted);
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
}

TEST(BackendSelectionTest, RefusesThreadCountsOutOfRange) {
  ThreadBackendOptions options;
  options.threads = 0;
  EXPECT_EQ(CodeOf(ThreadBackend::Create(options)), ErrorCode::kInvalidArgument);
  options.threads = limits::kIoThreadsMax + 1;
  EXPECT_EQ(CodeOf(ThreadBackend::Create(options)), ErrorCode::kInvalidArgument);
}

TEST(AlignedBufferTest, IsAlignedZeroedAndRoundedUp) {
  AlignedBuffer buffer = Take(AlignedBuffer::Create(4'097));
  EXPECT_EQ(buffer.size(), 8'192U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4'096, 0U);
  for (const std::byte byte : buffer.span()) ASSERT_EQ(byte, std::byte{0});
}

TEST(AlignedBufferTest, MovesItsMemory) {
  AlignedBuffer first = Take(AlignedBuffer::Create(1));
  const std::byte* memory = first.data();
  AlignedBuffer second = std::move(first);
  EXPECT_EQ(second.data(), memory);
  AlignedBuffer third = Take(AlignedBuffer::Create(1));
  third = std::move(second);
  EXPECT_EQ(third.data(), memory);
  EXPECT_EQ(second.size(), 0U);  // NOLINT: a moved-from buffer is documented to be empty
}

TEST(AlignedBufferTest, RefusesSizesOutOfRange) {
  EXPECT_EQ(CodeOf(AlignedBuffer::Create(0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(AlignedBuffer::Create(~std::size_t{0})), ErrorCode::kInvalidArgument);
}

TEST(ClockTest, SteadyClockDoesNotGoBack) {
  const SteadyClock clock;
  const std::int64_t first = clock.NowNs();
  EXPECT_GE(clock.NowNs(), first);
  EXPECT_GT(first, 0);
}

TEST(ClockTest, ManualClockMovesByHand) {
  ManualClock clock(5);
  clock.AdvanceNs(10);
  EXPECT_EQ(clock.NowNs(), 15);
}

}  // namespace
}  // namespace forebay::io::testing
