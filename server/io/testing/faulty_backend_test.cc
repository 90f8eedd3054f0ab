// FaultyBackend: each kind of fault happens, and only where it was armed. A sweep over all
// operations of a publication shows that no reported fault leaves wrong bytes.
#include "server/io/testing/faulty_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <thread>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::io::testing {
namespace {

using ::testing::HasSubstr;

class FaultyBackendTest : public ::testing::Test {
 protected:
  FaultyBackendTest() {
    FOREBAY_EXPECT_OK(memory_.AddFile("/ssd/a", Pattern(1'000)));
    directory_ = Take(backend_.OpenDirectory("/ssd"));
    queue_ = Take(backend_.CreateQueue({8}));
    reader_ = Take(directory_->Open("a", OpenMode::kRead));
    writer_ = Take(directory_->Open("w", OpenMode::kCreate));
  }

  Fault Once(FaultKind kind, std::uint64_t nth = 1) {
    Fault fault;
    fault.kind = kind;
    fault.nth = nth;
    return fault;
  }
  Result<std::uint64_t> Read(std::span<std::byte> buffer) {
    return RunOne(*queue_, ReadOf(*reader_, 0, buffer));
  }
  Result<std::uint64_t> Write(std::span<const std::byte> data) {
    return RunOne(*queue_, WriteOf(*writer_, 0, data));
  }

  MemoryBackend memory_;
  FaultInjector injector_;
  FaultyBackend backend_{memory_, injector_};
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<IoQueue> queue_;
  std::unique_ptr<File> reader_;
  std::unique_ptr<File> writer_;
};

int DifferingBits(std::span<const std::byte> a, std::span<const std::byte> b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    bits += std::popcount(std::to_integer<unsigned>(a[i] ^ b[i]));
  }
  return bits;
}

TEST_F(FaultyBackendTest, WithoutAFaultOnlyCounts) {
  std::vector<std::byte> buffer(1'000);
  EXPECT_EQ(Take(Read(buffer)), 1'000U);
  EXPECT_EQ(injector_.operations_seen(), 3U);  // two opens and the read
  EXPECT_EQ(injector_.faults_injected(), 0U);
}

TEST_F(FaultyBackendTest, FailsTheNthOnce) {
  std::vector<std::byte> buffer(10);
  Fault fault = Once(FaultKind::kEio, 2);
  fault.call = IoCall::kRead;
  injector_.Arm(fault);
  FOREBAY_EXPECT_OK(directory_->Stat("a"));
  EXPECT_EQ(Take(Read(buffer)), 10U);
  const Result<std::uint64_t> failed = Read(buffer);
  EXPECT_EQ(CodeOf(failed), ErrorCode::kDataLoss);
  EXPECT_EQ(ErrnoOf(failed), EIO);
  EXPECT_THAT(failed.error().message(), HasSubstr("injected fault at operation 5"));
  EXPECT_EQ(Take(Read(buffer)), 10U);
  EXPECT_EQ(injector_.faults_injected(), 1U);
  EXPECT_EQ(injector_.candidates_seen(), 3U);
}

TEST_F(FaultyBackendTest, FailsForGoodUntilDisarmed) {
  std::vector<std::byte> data(10);
  Fault fault = Once(FaultKind::kEnospc, 2);
  fault.is_persistent = true;
  injector_.Arm(fault);
  EXPECT_EQ(Take(Write(data)), 10U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ErrnoOf(Write(data)), ENOSPC);
  EXPECT_EQ(ErrnoOf(writer_->Preallocate(10)), ENOSPC);
  EXPECT_EQ(ErrnoOf(directory_->Open("x", OpenMode::kCreate)), ENOSPC);
  EXPECT_EQ(Take(Read(data)), 10U);
  injector_.Disarm();
  EXPECT_EQ(Take(Write(data)), 10U);
  EXPECT_EQ(injector_.faults_injected(), 5U);
}

TEST_F(FaultyBackendTest, AReadOnlyDeviceIsStillRead) {
  std::vector<std::byte> data(10);
  Fault fault = Once(FaultKind::kErofs);
  fault.is_persistent = true;
  injector_.Arm(fault);
  EXPECT_EQ(ErrnoOf(Write(data)), EROFS);
  EXPECT_EQ(ErrnoOf(directory_->Unlink("a")), EROFS);
  EXPECT_EQ(ErrnoOf(directory_->Open("x", OpenMode::kCreate)), EROFS);
  EXPECT_EQ(Take(Read(data)), 10U);
  EXPECT_EQ(injector_.faults_injected(), 3U);
}

TEST_F(FaultyBackendTest, InterruptionIsRetryable) {
  std::vector<std::byte> buffer(10);
  injector_.Arm(Once(FaultKind::kInterrupted));
  const Result<std::uint64_t> failed = Read(buffer);
  EXPECT_EQ(ErrnoOf(failed), EINTR);
  EXPECT_TRUE(failed.error().retryable());
}

TEST_F(FaultyBackendTest, AStaleHandleAnswersEveryCallWithItsError) {
  std::vector<std::byte> buffer(10);
  Fault fault = Once(FaultKind::kStale);
  fault.is_persistent = true;
  injector_.Arm(fault);
  EXPECT_EQ(ErrnoOf(Read(buffer)), ESTALE);
  EXPECT_EQ(ErrnoOf(reader_->Info()), ESTALE);
  EXPECT_EQ(ErrnoOf(directory_->Stat("a")), ESTALE);
  EXPECT_EQ(injector_.faults_injected(), 3U);
}

TEST_F(FaultyBackendTest, ShortTransfersMoveAndReportHalf) {
  std::vector<std::byte> buffer(1'000);
  injector_.Arm(Once(FaultKind::kShort));
  EXPECT_EQ(Take(Read(buffer)), 500U);
  EXPECT_EQ(buffer[499], Pattern(1'000)[499]);
  EXPECT_EQ(buffer[500], std::byte{0});
  injector_.Arm(Once(FaultKind::kShort));
  EXPECT_EQ(CodeOf(ReadFully(*queue_, *reader_, 0, buffer)), ErrorCode::kDataLoss);
  injector_.Arm(Once(FaultKind::kShort));
  EXPECT_EQ(CodeOf(WriteFully(*queue_, *writer_, 0, buffer)), ErrorCode::kDataLoss);
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/w")).size(), 500U);
  EXPECT_EQ(injector_.faults_injected(), 3U);
}

TEST_F(FaultyBackendTest, FlipsOneBitSilently) {
  const std::vector<std::byte> data = Pattern(1'000);
  std::vector<std::byte> buffer(1'000);
  injector_.Arm(Once(FaultKind::kBitFlip));
  EXPECT_EQ(Take(Read(buffer)), 1'000U);
  EXPECT_EQ(DifferingBits(buffer, data), 1);
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/a")), data);
  injector_.Arm(Once(FaultKind::kBitFlip));
  EXPECT_EQ(Take(Write(data)), 1'000U);
  EXPECT_EQ(DifferingBits(Take(memory_.FileBytes("/ssd/w")), data), 1);
  EXPECT_EQ(data, Pattern(1'000));
  EXPECT_EQ(injector_.faults_injected(), 2U);
}

TEST_F(FaultyBackendTest, TornWriteClaimsSuccess) {
  injector_.Arm(Once(FaultKind::kTornWrite));
  FOREBAY_EXPECT_OK(WriteFully(*queue_, *writer_, 0, Pattern(1'000)));
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/w")), Pattern(500));
  EXPECT_EQ(injector_.faults_injected(), 1U);
}

TEST_F(FaultyBackendTest, StalledOperationWaitsForItsRelease) {
  std::vector<std::byte> buffer(10);
  injector_.Arm(Once(FaultKind::kStall, 2));
  const std::vector<Operation> batch = {ReadOf(*reader_, 0, buffer, 1),
                                        ReadOf(*reader_, 0, buffer, 2),
                                        ReadOf(*reader_, 0, buffer, 3)};
  FOREBAY_EXPECT_OK(queue_->Submit(batch));
  std::vector<Completion> completions;
  EXPECT_EQ(queue_->Wait(3, completions, 5), 2U);
  EXPECT_EQ(queue_->in_flight(), 1U);
  EXPECT_EQ(queue_->Wait(1, completions, 0), 0U);
  std::thread releaser([this] { injector_.ReleaseStalls(); });
  EXPECT_EQ(queue_->Wait(1, completions), 1U);
  releaser.join();
  EXPECT_EQ(completions.at(2).tag, 2U);
  EXPECT_EQ(injector_.faults_injected(), 1U);
}

TEST_F(FaultyBackendTest, StalledDirectoryCallBlocksUntilReleased) {
  injector_.Arm(Once(FaultKind::kStall));
  std::thread caller([this] { FOREBAY_EXPECT_OK(directory_->Stat("a")); });
  while (injector_.faults_injected() == 0) std::this_thread::yield();
  injector_.ReleaseStalls();
  caller.join();
}

TEST_F(FaultyBackendTest, DestructionDropsWhatIsStalled) {
  std::vector<std::byte> buffer(10);
  injector_.Arm(Once(FaultKind::kStall));
  const Operation read = ReadOf(*reader_, 0, buffer);
  FOREBAY_EXPECT_OK(queue_->Submit({&read, 1}));
  queue_.reset();
  EXPECT_EQ(injector_.faults_injected(), 1U);
}

TEST_F(FaultyBackendTest, EveryCallCanFail) {
  injector_.Arm([] {
    Fault fault;
    fault.is_persistent = true;
    return fault;
  }());
  std::vector<std::byte> buffer(10);
  const std::uint64_t before = injector_.faults_injected();
  EXPECT_EQ(ErrnoOf(Read(buffer)), EIO);
  EXPECT_EQ(ErrnoOf(Write(buffer)), EIO);
  EXPECT_EQ(ErrnoOf(DataSync(*queue_, *writer_)), EIO);
  EXPECT_EQ(ErrnoOf(reader_->Info()), EIO);
  EXPECT_EQ(ErrnoOf(writer_->Preallocate(1)), EIO);
  EXPECT_EQ(ErrnoOf(writer_->Truncate(1)), EIO);
  EXPECT_EQ(ErrnoOf(directory_->Open("a", OpenMode::kRead)), EIO);
  EXPECT_EQ(ErrnoOf(directory_->Open("b", OpenMode::kAppend)), EIO);
  EXPECT_EQ(ErrnoOf(directory_->Stat("a")), EIO);
  EXPECT_EQ(ErrnoOf(directory_->List("")), EIO);
  EXPECT_EQ(ErrnoOf(directory_->MakeDirectory("d")), EIO);
  EXPECT_EQ(ErrnoOf(directory_->Rename("a", "b")), EIO);
  EXPECT_EQ(ErrnoOf(directory_->Unlink("a")), EIO);
  EXPECT_EQ(ErrnoOf(directory_->RemoveDirectory("a")), EIO);
  EXPECT_EQ(ErrnoOf(directory_->Sync("")), EIO);
  EXPECT_EQ(ErrnoOf(directory_->FreeSpace()), EIO);
  EXPECT_EQ(injector_.faults_injected() - before, 16U);
  EXPECT_TRUE(Take(memory_.FileBytes("/ssd/w")).empty());
}

// Publishes one file as docs/design.md, 7.2, demands; its last name is "final".
Status Publish(IoBackend& backend, std::span<const std::byte> bytes) {
  FOREBAY_ASSIGN(const std::unique_ptr<Directory> directory, backend.OpenDirectory("/ssd"));
  FOREBAY_ASSIGN(const std::unique_ptr<IoQueue> queue, backend.CreateQueue({4}));
  FOREBAY_ASSIGN(const std::unique_ptr<File> file, directory->Open("temp", OpenMode::kCreate));
  FOREBAY_TRY(WriteFully(*queue, *file, 0, bytes));
  FOREBAY_TRY(DataSync(*queue, *file));
  FOREBAY_TRY(directory->Rename("temp", "final"));
  return directory->Sync("");
}

TEST(FaultSweepTest, AReportedFaultNeverPublishesWrongBytes) {
  const std::vector<std::byte> bytes = Pattern(10'000);
  std::uint64_t runs = 0;
  for (const FaultKind kind : {FaultKind::kEio, FaultKind::kEnospc, FaultKind::kErofs,
                               FaultKind::kInterrupted,
                               FaultKind::kShort}) {
    for (const bool is_persistent : {false, true}) {
      for (std::uint64_t nth = 1;; ++nth) {
        MemoryBackend memory;
        FOREBAY_EXPECT_OK(memory.AddDirectory("/ssd"));
        FaultInjector injector;
        FaultyBackend faulty(memory, injector);
        injector.Arm({kind, std::nullopt, nth, is_persistent, nth});
        const Status status = Publish(faulty, bytes);
        if (injector.faults_injected() == 0) {
          FOREBAY_EXPECT_OK(status);
          break;
        }
        ++runs;
        EXPECT_FALSE(status.has_value());
        EXPECT_EQ(memory.open_file_count(), 0U);
        memory.Crash({CrashMode::kRandomSubset, nth, 512});
        const auto found = memory.FileBytes("/ssd/final");
        if (found.has_value()) {
          EXPECT_EQ(*found, bytes);
        }
      }
    }
  }
  EXPECT_EQ(runs, 2U * (5 + 5 + 5 + 5 + 1));
}

}  // namespace
}  // namespace forebay::io::testing
