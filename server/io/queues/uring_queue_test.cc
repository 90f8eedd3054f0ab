// The ring under load and under errors. The linker wraps calls of liburing (see CMakeLists.txt):
// the wraps submit fewer entries, refuse calls, or change the kernel's answers. Everything else
// is a real ring.
#include "server/io/queues/uring_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "server/io/posix/posix_file.h"
#include "server/io/testing/io_test_fixture.h"

namespace {

// What the wraps do next. Plain state: each test drives one ring at a time.
struct RingFaults {
  bool submits_one = false;          // partial submission
  std::deque<int> submit_answers;    // not 0: returned instead of submitting
  int submit_answer_always = 0;      // not 0: returned by every call
  std::deque<int> answers;           // not 0: replace the results of completions, in order
  std::uint64_t short_by_half = 0;   // completions still to be cut to half
  std::uint32_t refused_flags = 0;   // ring flags answered with EINVAL
  int setup_answer = 0;              // not 0: returned instead of making a ring
  std::uint64_t applied = 0;         // how often any of these happened
  std::uint64_t overflows_seen = 0;  // completions taken while others had overflowed
};
RingFaults faults;

}  // namespace

extern "C" {
int __real_io_uring_submit(io_uring* ring);
int __wrap_io_uring_submit(io_uring* ring);
unsigned __real_io_uring_peek_batch_cqe(io_uring* ring, io_uring_cqe** cqes, unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(io_uring* ring, io_uring_cqe** cqes, unsigned count);
int __real_io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* p);
int __wrap_io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* p);

int __wrap_io_uring_submit(io_uring* ring) {
  if (faults.submit_answer_always != 0) {
    ++faults.applied;
    return faults.submit_answer_always;
  }
  if (!faults.submit_answers.empty()) {
    const int answer = faults.submit_answers.front();
    faults.submit_answers.pop_front();
    if (answer != 0) {
      ++faults.applied;
      return answer;
    }
  }
  const unsigned tail = ring->sq.sqe_tail;
  if (!faults.submits_one || tail - ring->sq.sqe_head <= 1) return __real_io_uring_submit(ring);
  ++faults.applied;
  ring->sq.sqe_tail = ring->sq.sqe_head + 1;
  const int taken = __real_io_uring_submit(ring);
  ring->sq.sqe_tail = tail;
  return taken;
}

unsigned __wrap_io_uring_peek_batch_cqe(io_uring* ring, io_uring_cqe** cqes, unsigned count) {
  if ((*ring->sq.kflags & IORING_SQ_CQ_OVERFLOW) != 0) ++faults.overflows_seen;
  const unsigned ready = __real_io_uring_peek_batch_cqe(ring, cqes, count);
  for (unsigned i = 0; i < ready; ++i) {
    if (!faults.answers.empty()) {
      const int answer = faults.answers.front();
      faults.answers.pop_front();
      if (answer != 0) {
        cqes[i]->res = answer;
        ++faults.applied;
      }
    } else if (faults.short_by_half > 0 && cqes[i]->res > 1) {
      --faults.short_by_half;
      ++faults.applied;
      cqes[i]->res /= 2;
    }
  }
  return ready;
}

int __wrap_io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* p) {
  if (faults.setup_answer != 0 || (p->flags & faults.refused_flags) != 0) {
    ++faults.applied;
    return faults.setup_answer != 0 ? faults.setup_answer : -EINVAL;
  }
  return __real_io_uring_queue_init_params(entries, ring, p);
}
}

namespace forebay::io::testing {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kBlocks = 256;

class UringQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    faults = {};
    if (!IsIoUringAvailable()) GTEST_SKIP() << CheckIoUring().error().ToString();
    backend_ = Take(UringBackend::Create());
    directory_ = Take(backend_->OpenDirectory(folder_.path()));
    const auto queue = Take(backend_->CreateQueue({4}));
    const auto file = Take(directory_->Open("a", OpenMode::kCreate));
    FOREBAY_EXPECT_OK(WriteFully(*queue, *file, 0, Pattern(kBlock * kBlocks)));
    file_ = Take(directory_->Open("a", OpenMode::kRead));
    buffer_.assign(kBlock * kBlocks, std::byte{0});
    Make(64);
  }
  void TearDown() override { faults = {}; }

  void Make(std::size_t depth, const UringOptions& options = {}) {
    queue_ = Take(UringQueue::Create({depth}, options));
  }
  std::vector<Operation> Reads(std::size_t first, std::size_t count) {
    std::vector<Operation> batch;
    for (std::size_t i = first; i < first + count; ++i) {
      batch.push_back(ReadOf(*file_, i * kBlock,
                             std::span(buffer_).subspan(i * kBlock, kBlock), i));
    }
    return batch;
  }
  // Waits until the queue is idle. Every tag must complete once, with all bytes.
  void ExpectAllRead(std::size_t count) {
    std::vector<Completion> completions;
    while (queue_->in_flight() > 0) queue_->Wait(1, completions, std::nullopt);
    ASSERT_EQ(completions.size(), count);
    std::vector<int> seen(kBlocks, 0);
    for (const Completion& completion : completions) {
      ASSERT_TRUE(completion.bytes.has_value()) << completion.bytes.error().ToString();
      EXPECT_EQ(*completion.bytes, kBlock);
      ++seen.at(completion.tag);
    }
    EXPECT_EQ(static_cast<std::size_t>(std::count(seen.begin(), seen.end(), 1)), count);
    const std::vector<std::byte> wanted = Pattern(count * kBlock);
    EXPECT_EQ(std::memcmp(buffer_.data(), wanted.data(), wanted.size()), 0);
  }

  TempFolder folder_;
  std::unique_ptr<UringBackend> backend_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<File> file_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<UringQueue> queue_;
};

TEST_F(UringQueueTest, SubmitsABatchInOneCall) {
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 64)));
  EXPECT_EQ(queue_->counters().submit_calls, 1U);
  ExpectAllRead(64);
}

TEST_F(UringQueueTest, SubmissionRingSmallerThanTheBatch) {
  UringOptions options;
  options.submission_entries = 4;
  Make(256, options);
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 256)));
  EXPECT_GE(queue_->counters().submit_calls, 64U);
  ExpectAllRead(256);
}

TEST_F(UringQueueTest, CompletionRingOverflowLosesNothing) {
  UringOptions options;
  options.submission_entries = 4;
  options.completion_entries = 4;
  Make(256, options);
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 256)));
  ExpectAllRead(256);
  EXPECT_GT(faults.overflows_seen, 0U);
}

TEST_F(UringQueueTest, PartialSubmissionGoesOn) {
  faults.submits_one = true;
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 64)));
  ExpectAllRead(64);
  EXPECT_GE(faults.applied, 63U);
}

TEST_F(UringQueueTest, TemporaryRefusalsAreTriedAgain) {
  faults.submit_answers = {-EAGAIN, -EBUSY, -EINTR, 0, -EBUSY};
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 32)));
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(32, 32)));
  ExpectAllRead(64);
  EXPECT_GE(faults.applied, 3U);
}

TEST_F(UringQueueTest, RefusalWithoutEndBecomesAnErrorInBoundedTime) {
  faults.submit_answer_always = -EAGAIN;
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 2)));
  std::vector<Completion> completions;
  EXPECT_EQ(queue_->Wait(2, completions, 5), 0U);
  EXPECT_EQ(queue_->Wait(2, completions, std::nullopt), 2U);
  for (const Completion& completion : completions) EXPECT_EQ(ErrnoOf(completion.bytes), EAGAIN);
}

TEST_F(UringQueueTest, FatalRefusalEndsWhatTheKernelNeverSawAndTheQueue) {
  faults.submit_answers = {0, -EBADF};
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 8)));
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(8, 8)));
  std::vector<Completion> completions;
  while (queue_->in_flight() > 0) queue_->Wait(16, completions, std::nullopt);
  ASSERT_EQ(completions.size(), 16U);
  for (const Completion& completion : completions) {
    EXPECT_EQ(completion.bytes.has_value(), completion.tag < 8);
  }
  const Status refused = queue_->Submit(Reads(0, 1));
  EXPECT_EQ(ErrnoOf(refused), EBADF);
  EXPECT_EQ(faults.applied, 1U);
}

TEST_F(UringQueueTest, ShortCompletionsAreResumed) {
  faults.short_by_half = 100;
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 64)));
  ExpectAllRead(64);
  EXPECT_EQ(faults.applied, 100U);
  EXPECT_EQ(queue_->counters().resumed, 100U);
}

TEST_F(UringQueueTest, InterruptedCompletionsAreResumed) {
  faults.answers = {-EINTR, 0, -EINTR, -EAGAIN, -EAGAIN};
  FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 8)));
  ExpectAllRead(8);
  EXPECT_EQ(faults.applied, 4U);
}

TEST_F(UringQueueTest, EndlessAgainBecomesAnError) {
  faults.answers = {-EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN};
  EXPECT_EQ(ErrnoOf(RunOne(*queue_, Reads(0, 1)[0])), EAGAIN);
  EXPECT_EQ(faults.applied, 4U);
}

TEST_F(UringQueueTest, ShortWritesAreResumed) {
  faults.short_by_half = 5;
  const auto file = Take(directory_->Open("b", OpenMode::kCreate));
  FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, Pattern(10'000)));
  EXPECT_EQ(faults.applied, 5U);
  EXPECT_EQ(Take(file->Info()).bytes, 10'000U);
}

TEST_F(UringQueueTest, AFailedSyncIsReportedOnce) {
  const auto file = Take(directory_->Open("b", OpenMode::kCreate));
  faults.answers = {-EIO};
  const Status status = DataSync(*queue_, *file);
  EXPECT_EQ(ErrnoOf(status), EIO);
  EXPECT_EQ(faults.applied, 1U);
  EXPECT_EQ(queue_->counters().resumed, 0U);
}

// Wraps a descriptor that the directories of this room would refuse.
PosixFile Special(const char* path, int flags) {
  return PosixFile(UniqueFd(::open(path, flags | O_CLOEXEC)), {path, false});
}

TEST_F(UringQueueTest, RealInputErrorIsDataLoss) {
  PosixFile file = Special("/proc/self/mem", O_RDONLY);
  const auto bytes = RunOne(*queue_, ReadOf(file, 0, std::span(buffer_).first(100)));
  EXPECT_EQ(ErrnoOf(bytes), EIO);
  EXPECT_EQ(CodeOf(bytes), ErrorCode::kDataLoss);
}

TEST_F(UringQueueTest, RealFullDeviceIsResourceExhausted) {
  PosixFile file = Special("/dev/full", O_WRONLY);
  const auto bytes = RunOne(*queue_, WriteOf(file, 0, std::span(buffer_).first(100)));
  EXPECT_EQ(ErrnoOf(bytes), ENOSPC);
  EXPECT_EQ(CodeOf(bytes), ErrorCode::kResourceExhausted);
}

TEST_F(UringQueueTest, RealBadDescriptorIsReported) {
  PosixFile file(UniqueFd(), {"closed", false});
  EXPECT_EQ(ErrnoOf(RunOne(*queue_, ReadOf(file, 0, std::span(buffer_).first(1)))), EBADF);
  EXPECT_EQ(ErrnoOf(RunOne(*queue_, SyncOf(file))), EBADF);
}

TEST_F(UringQueueTest, RealShortTransfersOfAPipeAreResumed) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  PosixFile reader(UniqueFd{ends[0]}, {"pipe", false});
  const UniqueFd writer(ends[1]);
  const Operation read = ReadOf(reader, 0, std::span(buffer_).first(8), 5);
  FOREBAY_EXPECT_OK(queue_->Submit({&read, 1}));
  std::vector<Completion> completions;
  EXPECT_EQ(queue_->Wait(1, completions, 10), 0U);
  ASSERT_EQ(::write(writer.get(), "abcd", 4), 4);
  EXPECT_EQ(queue_->Wait(1, completions, 10), 0U);
  ASSERT_EQ(::write(writer.get(), "efgh", 4), 4);
  EXPECT_EQ(queue_->Wait(1, completions, std::nullopt), 1U);
  EXPECT_EQ(Take(completions.at(0).bytes), 8U);
  EXPECT_EQ(std::memcmp(buffer_.data(), "abcdefgh", 8), 0);
  EXPECT_EQ(queue_->counters().resumed, 1U);
}

TEST_F(UringQueueTest, WaitSleepsUntilItsTimeout) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  PosixFile reader(UniqueFd{ends[0]}, {"pipe", false});
  UniqueFd writer(ends[1]);
  const Operation read = ReadOf(reader, 0, std::span(buffer_).first(8), 5);
  FOREBAY_EXPECT_OK(queue_->Submit({&read, 1}));
  std::vector<Completion> completions;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(queue_->Wait(1, completions, 30), 0U);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
  writer.Reset();
  EXPECT_EQ(queue_->Wait(1, completions, std::nullopt), 1U);
  EXPECT_EQ(Take(completions.at(0).bytes), 0U);
}

TEST_F(UringQueueTest, OlderKernelsGetAPlainerRing) {
  for (const std::uint32_t refused : {IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_COOP_TASKRUN}) {
    faults = {};
    faults.refused_flags = refused;
    Make(64);
    buffer_.assign(kBlock * kBlocks, std::byte{0});
    FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 64)));
    ExpectAllRead(64);
    EXPECT_GT(faults.applied, 0U);
  }
}

TEST_F(UringQueueTest, RefusedRingIsAnError) {
  faults.setup_answer = -ENOMEM;
  EXPECT_EQ(ErrnoOf(UringQueue::Create({64}, {})), ENOMEM);
  EXPECT_EQ(ErrnoOf(UringBackend::Create()), ENOMEM);
}

TEST_F(UringQueueTest, WorksOnAnotherThreadThanItsMaker) {
  std::thread user([this] {
    FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, 64)));
    ExpectAllRead(64);
    FOREBAY_EXPECT_OK(queue_->Submit(Reads(64, 64)));
  });
  user.join();
  queue_.reset();
}

TEST_F(UringQueueTest, RandomScheduleNeitherLosesNorRepeats) {
  std::uint64_t random = 20'240'607;
  SCOPED_TRACE("seed 20240607");
  const auto next = [&random](std::uint64_t bound) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random >> 33) % bound;
  };
  UringOptions options;
  options.submission_entries = 2;
  options.completion_entries = 4;
  Make(32, options);
  for (int round = 0; round < 200; ++round) {
    faults = {};
    faults.submits_one = next(2) == 0;
    for (int i = 0; i < 8; ++i) faults.submit_answers.push_back(next(4) == 0 ? -EBUSY : 0);
    for (int i = 0; i < 8; ++i) faults.answers.push_back(next(4) == 0 ? -EINTR : 0);
    faults.short_by_half = next(8);
    buffer_.assign(kBlock * kBlocks, std::byte{0});
    const std::size_t count = 1 + next(32);
    const std::size_t cut = next(count + 1);
    FOREBAY_EXPECT_OK(queue_->Submit(Reads(0, cut)));
    FOREBAY_EXPECT_OK(queue_->Submit(Reads(cut, count - cut)));
    ExpectAllRead(count);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace forebay::io::testing
