// Rates are of what was moved; time, errors and ends of files end a transfer.
#include "server/daemon/doctor/measured_transfer.h"

#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::daemon {
namespace {

using io::testing::Pattern;
using io::testing::Take;
using limits::kMiB;

// A clock that every look advances by a millisecond.
class TickingClock final : public io::Clock {
 public:
  std::int64_t NowNs() const override { return now_ns_ += 1'000'000; }

 private:
  mutable std::int64_t now_ns_ = 0;
};

class TransferTest : public ::testing::Test {
 protected:
  TransferTest() {
    EXPECT_TRUE(memory_.AddFile("/a", Pattern(5 * kMiB)).has_value());
    EXPECT_TRUE(memory_.AddFile("/b", Pattern(3 * kMiB)).has_value());
    root_ = Take(memory_.OpenDirectory("/"));
  }
  std::unique_ptr<io::File> Open(const std::string& name) {
    return Take(root_->Open(name, io::OpenMode::kRead));
  }

  io::MemoryBackend memory_;
  std::unique_ptr<io::Directory> root_;
  static constexpr std::int64_t kNever = std::int64_t{1} << 62;
};

TEST_F(TransferTest, ReadsAllRangesInRequests) {
  const auto a = Open("a"), b = Open("b");
  const std::vector<FileRange> ranges = {{.file = a.get(), .bytes = 5 * kMiB},
                                         {.file = b.get(), .offset = kMiB, .bytes = 2 * kMiB}};
  const TickingClock clock;
  for (const std::size_t requests : {1U, 3U, 64U}) {
    const auto rate = Take(Transfer(memory_, clock, ranges,
                                    {.request_bytes = kMiB, .requests = requests,
                                     .deadline_ns = kNever}));
    EXPECT_EQ(rate.bytes, 7 * kMiB) << requests;
    EXPECT_GT(rate.ns, 0);
    EXPECT_GT(rate.BytesPerSecond(), 0U);
  }
}

TEST_F(TransferTest, AReadBeyondTheEndCountsWhatThereIs) {
  const auto a = Open("a");
  const FileRange range = {.file = a.get(), .offset = 4 * kMiB, .bytes = 8 * kMiB};
  const TickingClock clock;
  const auto rate = Take(Transfer(memory_, clock, {&range, 1},
                                  {.request_bytes = 4 * kMiB, .deadline_ns = kNever}));
  EXPECT_EQ(rate.bytes, kMiB);
}

TEST_F(TransferTest, NoRequestBeginsAfterTheDeadline) {
  const auto a = Open("a");
  const FileRange range = {.file = a.get(), .bytes = 5 * kMiB};
  const TickingClock clock;
  // Each request costs a look at the clock, which is one millisecond later each time.
  const auto some = Take(Transfer(memory_, clock, {&range, 1},
                                  {.request_bytes = kMiB, .deadline_ns = 4'000'000}));
  EXPECT_EQ(some.bytes, 2 * kMiB);
  const auto none = Take(Transfer(memory_, clock, {&range, 1}, {.request_bytes = kMiB}));
  EXPECT_EQ(none.bytes, 0U);
}

TEST_F(TransferTest, WritesBytesThatDoNotCompress) {
  const auto file = Take(root_->Open("new", io::OpenMode::kCreateDirect));
  const FileRange range = {.file = file.get(), .bytes = kMiB};
  const TickingClock clock;
  const auto rate = Take(Transfer(memory_, clock, {&range, 1},
                                  {.kind = io::OpKind::kWrite,
                                   .request_bytes = kMiB / 4,
                                   .requests = 2,
                                   .deadline_ns = kNever}));
  EXPECT_EQ(rate.bytes, kMiB);
  const auto bytes = Take(memory_.FileBytes("/new"));
  ASSERT_EQ(bytes.size(), kMiB);
  // The bytes are random, so hardly any two of 512 words are equal.
  std::set<std::vector<std::byte>> words;
  for (std::size_t at = 0; at < 4096; at += 8) {
    words.insert({bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at) + 8});
  }
  EXPECT_GT(words.size(), 500U);
}

TEST_F(TransferTest, AnErrorEndsTheTransferWhileOthersAreUnderWay) {
  io::FaultInjector faults;
  io::FaultyBackend faulty(memory_, faults);
  const auto root = Take(faulty.OpenDirectory("/"));
  const auto a = Take(root->Open("a", io::OpenMode::kRead));
  const FileRange range = {.file = a.get(), .bytes = 5 * kMiB};
  const TickingClock clock;
  faults.Arm({.kind = io::FaultKind::kEio, .call = io::IoCall::kRead, .nth = 2});
  const auto rate = Transfer(faulty, clock, {&range, 1},
                             {.request_bytes = kMiB, .requests = 3, .deadline_ns = kNever});
  EXPECT_EQ(io::testing::ErrnoOf(rate), EIO);
  EXPECT_EQ(faults.faults_injected(), 1U);
}

}  // namespace
}  // namespace forebay::daemon
