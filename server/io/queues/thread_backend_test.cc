// The thread pool under kernel errors. The linker wraps pread, pwrite and fdatasync.
#include "server/io/queues/thread_backend.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "server/io/posix/posix_file.h"
#include "server/io/testing/io_test_fixture.h"

namespace {

// Written by tests while the pool is idle, used up by its threads.
struct CallFaults {
  std::atomic<int> interrupts{0};  // calls that end with EINTR
  std::atomic<int> shorts{0};      // calls cut to half
  std::atomic<int> zero_writes{0};
  std::atomic<int> sync_errors{0};
  std::atomic<int> applied{0};
};
CallFaults faults;

bool UseUp(std::atomic<int>& left) {
  int now = left.load();
  while (now > 0 && !left.compare_exchange_weak(now, now - 1)) {
  }
  if (now > 0) ++faults.applied;
  return now > 0;
}

}  // namespace

extern "C" {
ssize_t __real_pread(int fd, void* memory, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void* memory, size_t bytes, off_t offset);
ssize_t __real_pwrite(int fd, const void* memory, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void* memory, size_t bytes, off_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

ssize_t __wrap_pread(int fd, void* memory, size_t bytes, off_t offset) {
  if (UseUp(faults.interrupts)) {
    errno = EINTR;
    return -1;
  }
  return __real_pread(fd, memory, bytes > 1 && UseUp(faults.shorts) ? bytes / 2 : bytes, offset);
}
ssize_t __wrap_pwrite(int fd, const void* memory, size_t bytes, off_t offset) {
  if (UseUp(faults.interrupts)) {
    errno = EINTR;
    return -1;
  }
  if (UseUp(faults.zero_writes)) return 0;
  return __real_pwrite(fd, memory, bytes > 1 && UseUp(faults.shorts) ? bytes / 2 : bytes, offset);
}
int __wrap_fdatasync(int fd) {
  if (UseUp(faults.sync_errors)) {
    errno = EIO;
    return -1;
  }
  return __real_fdatasync(fd);
}
}

namespace forebay::io::testing {
namespace {

class ThreadBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = Take(ThreadBackend::Create());
    directory_ = Take(backend_->OpenDirectory(folder_.path()));
    queue_ = Take(backend_->CreateQueue({64}));
    const auto file = Take(directory_->Open("a", OpenMode::kCreate));
    FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, Pattern(100'000)));
    reader_ = Take(directory_->Open("a", OpenMode::kRead));
    writer_ = Take(directory_->Open("w", OpenMode::kCreate));
    faults.applied = 0;
  }

  TempFolder folder_;
  std::unique_ptr<ThreadBackend> backend_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<IoQueue> queue_;
  std::unique_ptr<File> reader_;
  std::unique_ptr<File> writer_;
};

TEST_F(ThreadBackendTest, ShortAndInterruptedTransfersAreResumed) {
  std::vector<std::byte> buffer(100'000);
  faults.interrupts = 3;
  faults.shorts = 5;
  FOREBAY_EXPECT_OK(ReadFully(*queue_, *reader_, 0, buffer));
  EXPECT_EQ(buffer, Pattern(100'000));
  EXPECT_EQ(faults.applied, 8);
  faults.interrupts = 3;
  faults.shorts = 5;
  FOREBAY_EXPECT_OK(WriteFully(*queue_, *writer_, 0, buffer));
  EXPECT_EQ(faults.applied, 16);
  const auto again = Take(directory_->Open("w", OpenMode::kRead));
  std::vector<std::byte> copy(100'000);
  FOREBAY_EXPECT_OK(ReadFully(*queue_, *again, 0, copy));
  EXPECT_EQ(copy, buffer);
}

TEST_F(ThreadBackendTest, AWriteThatMovesNothingFails) {
  faults.zero_writes = 1;
  EXPECT_EQ(ErrnoOf(WriteFully(*queue_, *writer_, 0, Pattern(10))), EIO);
  EXPECT_EQ(faults.applied, 1);
}

TEST_F(ThreadBackendTest, AFailedSyncIsReportedAndNotRetried) {
  faults.sync_errors = 1;
  EXPECT_EQ(ErrnoOf(DataSync(*queue_, *writer_)), EIO);
  EXPECT_EQ(faults.applied, 1);
}

TEST_F(ThreadBackendTest, RealKernelErrorsAreMapped) {
  std::vector<std::byte> buffer(100);
  PosixFile memory(UniqueFd(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC)), {"mem", false});
  EXPECT_EQ(CodeOf(RunOne(*queue_, ReadOf(memory, 0, buffer))), ErrorCode::kDataLoss);
  PosixFile full(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), {"full", false});
  EXPECT_EQ(ErrnoOf(RunOne(*queue_, WriteOf(full, 0, buffer))), ENOSPC);
  PosixFile closed(UniqueFd(), {"closed", false});
  EXPECT_EQ(ErrnoOf(RunOne(*queue_, ReadOf(closed, 0, buffer))), EBADF);
  EXPECT_EQ(ErrnoOf(RunOne(*queue_, SyncOf(closed))), EBADF);
}

TEST_F(ThreadBackendTest, ManyQueuesOfManyThreadsShareThePool) {
  std::vector<std::thread> users;
  for (std::uint64_t user = 0; user < 6; ++user) {
    users.emplace_back([this, user] {
      const auto queue = Take(backend_->CreateQueue({16}));
      std::vector<std::byte> buffer(16 * 1'000);
      for (int round = 0; round < 50; ++round) {
        std::vector<Operation> batch;
        for (std::size_t i = 0; i < 16; ++i) {
          batch.push_back(ReadOf(*reader_, user * 16'000 + i * 1'000,
                                 std::span(buffer).subspan(i * 1'000, 1'000), i));
        }
        FOREBAY_EXPECT_OK(queue->Submit(batch));
        std::vector<Completion> completions;
        while (queue->in_flight() > 0) queue->Wait(1 + user, completions);
        EXPECT_EQ(completions.size(), 16U);
      }
      for (std::size_t i = 0; i < buffer.size(); ++i) {
        ASSERT_EQ(buffer[i], PatternByte(user * 16'000 + i, 0));
      }
    });
  }
  for (std::thread& user : users) user.join();
}

}  // namespace
}  // namespace forebay::io::testing
