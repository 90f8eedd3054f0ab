// A GFS that fails for a short time costs only time. One that fails for longer than stage.retry_for
// is a typed error that may be retried. Errors of the local node are not repeated.
#include "server/stage/gfs/patient_backend.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/posix/posix_directory.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::stage::patient_backend_test {

using io::FaultKind;
using io::IoCall;
using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;
using ::testing::HasSubstr;

constexpr std::int64_t kHungAfterMs = 30'000;

class PatientBackendTest : public ::testing::Test {
 protected:
  PatientBackendTest() {
    bytes_ = Pattern(40'000, 1);
    EXPECT_TRUE(memory_.AddFile("/gfs/a/data.bin", bytes_).has_value());
  }
  void Open(const PatienceOptions& options) {
    patience_.emplace(options);
    backend_.emplace(faulty_, *patience_, calls_, throttle_);
    root_ = Take(backend_->OpenGfsDirectory("/gfs"));
  }
  // Makes every call of kind `call` fail, until `count` calls have failed; the returned thread then
  // ends the fault.
  std::jthread Outage(std::optional<IoCall> call, std::uint64_t count) {
    faults_.Arm({.kind = FaultKind::kEio, .call = call, .is_persistent = true});
    return std::jthread([this, count] {
      while (faults_.candidates_seen() < count) std::this_thread::yield();
      faults_.Disarm();
    });
  }

  io::MemoryBackend memory_;
  io::FaultInjector faults_;
  io::FaultyBackend faulty_{memory_, faults_};
  std::vector<std::byte> bytes_;
  io::ManualClock clock_;
  GfsCalls calls_{kHungAfterMs, clock_};
  GfsThrottle throttle_{clock_};
  std::optional<GfsPatience> patience_;
  std::optional<PatientBackend> backend_;
  std::unique_ptr<io::Directory> root_;
};

TEST_F(PatientBackendTest, ReadsOutliveAnOutageAndAreCountedAsOneIncident) {
  Open({.retry_for_ms = 60'000, .retry_max_interval_ms = 50});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_->CreateQueue({.depth = 4}));
  std::vector<std::byte> read(bytes_.size());
  std::vector<io::Operation> operations;
  for (std::size_t i = 0; i < 4; ++i) {
    io::Operation operation;
    operation.file = file.get();
    operation.offset = i * 10'000;
    operation.buffer = std::span(read).subspan(i * 10'000, 10'000);
    operation.tag = 70 + i;
    operations.push_back(operation);
  }
  const std::jthread outage = Outage(IoCall::kRead, 12);
  ASSERT_TRUE(queue->Submit(operations).has_value());
  EXPECT_EQ(CodeOf(queue->Submit({operations.data(), 1})), ErrorCode::kResourceExhausted);
  std::vector<io::Completion> completions;
  EXPECT_EQ(queue->Wait(4, completions), 4U);
  std::uint64_t tags = 0;
  for (const io::Completion& completion : completions) {
    ASSERT_TRUE(completion.bytes.has_value()) << completion.bytes.error().ToString();
    EXPECT_EQ(*completion.bytes, 10'000U);
    tags += completion.tag;
  }
  EXPECT_EQ(tags, 70U + 71 + 72 + 73);
  EXPECT_EQ(read, bytes_);
  EXPECT_GE(faults_.faults_injected(), 4U);
  const GfsFigures figures = patience_->figures();
  EXPECT_EQ(figures.incidents, 1U);
  EXPECT_GE(figures.retries, 4U);
  EXPECT_EQ(figures.given_up, 0U);
  EXPECT_EQ(figures.failing, 0U);
  EXPECT_THAT(figures.last_error, HasSubstr("injected fault"));
}

TEST_F(PatientBackendTest, EveryCallOfADirectoryOutlivesAnOutage) {
  Open({.retry_for_ms = 60'000, .retry_max_interval_ms = 50});
  {
    const std::jthread outage = Outage(IoCall::kOpen, 3);
    EXPECT_TRUE(root_->Open("a/data.bin", io::OpenMode::kRead).has_value());
  }
  {
    const std::jthread outage = Outage(IoCall::kStat, 3);
    EXPECT_EQ(Take(root_->Stat("a/data.bin")).bytes, bytes_.size());
  }
  {
    const std::jthread outage = Outage(IoCall::kList, 3);
    EXPECT_EQ(Take(root_->List("a")).size(), 1U);
  }
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  {
    const std::jthread outage = Outage(IoCall::kInfo, 3);
    EXPECT_EQ(Take(file->Info()).bytes, bytes_.size());
  }
  EXPECT_EQ(patience_->figures().incidents, 4U);
  EXPECT_EQ(patience_->figures().failing, 0U);
}

TEST_F(PatientBackendTest, BeyondTheLimitItIsARetryableErrorAndALaterCallSucceeds) {
  Open({.retry_for_ms = 50, .retry_max_interval_ms = 10});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_->CreateQueue({.depth = 4}));
  std::vector<std::byte> read(1'000);
  faults_.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead, .is_persistent = true});
  const Status failed = io::ReadFully(*queue, *file, 0, read);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kUnavailable) << failed.error().ToString();
  EXPECT_TRUE(failed.error().retryable());
  EXPECT_THAT(failed.error().message(), HasSubstr("stage.retry_for"));
  EXPECT_GE(faults_.faults_injected(), 2U);
  EXPECT_EQ(patience_->figures().given_up, 1U);
  EXPECT_EQ(patience_->figures().failing, 0U);
  faults_.Disarm();
  EXPECT_TRUE(io::ReadFully(*queue, *file, 0, read).has_value());
}

TEST_F(PatientBackendTest, WhatIsNotTransientIsSaidAtOnce) {
  Open({.retry_for_ms = 60'000});
  EXPECT_EQ(CodeOf(root_->Open("a/missing", io::OpenMode::kRead)), ErrorCode::kNotFound);
  EXPECT_EQ(patience_->figures().incidents, 0U);
}

TEST_F(PatientBackendTest, AStaleFileIsOpenedAgain) {
  Open({.retry_for_ms = 60'000, .retry_max_interval_ms = 10});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_->CreateQueue({.depth = 4}));
  faults_.Arm({.kind = FaultKind::kStale, .call = IoCall::kInfo});
  EXPECT_EQ(Take(file->Info()).bytes, bytes_.size());
  EXPECT_EQ(faults_.candidates_seen(), 3U) << "the file, the one that was opened, and that again";
  std::vector<std::byte> read(bytes_.size());
  faults_.Arm({.kind = FaultKind::kStale, .call = IoCall::kRead});
  EXPECT_TRUE(io::ReadFully(*queue, *file, 0, read).has_value());
  EXPECT_EQ(read, bytes_);
  EXPECT_EQ(faults_.faults_injected(), 2U);
  EXPECT_EQ(patience_->figures().failing, 0U);
}

// The old handle may still answer, but about an object that has no name any more.
TEST_F(PatientBackendTest, AnotherObjectUnderTheNameOfAStaleFileIsRefusedAtOnce) {
  Open({.retry_for_ms = 3'600'000, .retry_max_interval_ms = 10});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_->CreateQueue({.depth = 4}));
  EXPECT_TRUE(memory_.AddFile("/gfs/a/data.bin", Pattern(30'000, 2)).has_value());
  faults_.Arm({.kind = FaultKind::kStale, .call = IoCall::kInfo});
  const Result<io::FileInfo> info = file->Info();
  ASSERT_EQ(CodeOf(info), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(info.error().message(), HasSubstr("'a/data.bin' has another size"));
  std::vector<std::byte> read(1'000);
  faults_.Arm({.kind = FaultKind::kStale, .call = IoCall::kRead});
  EXPECT_EQ(CodeOf(io::ReadFully(*queue, *file, 0, read)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(faults_.faults_injected(), 2U);
  EXPECT_EQ(patience_->figures().failing, 0U);
}

TEST_F(PatientBackendTest, AStaleFileThatCannotBeOpenedForAWhileIsOpenedLater) {
  Open({.retry_for_ms = 60'000, .retry_max_interval_ms = 10});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  // Each try of Info needs a new handle, and the file inside cannot say its size, until the end.
  faults_.Arm({.kind = FaultKind::kStale, .call = IoCall::kInfo, .is_persistent = true});
  const std::jthread outage([this] {
    while (faults_.candidates_seen() < 6) std::this_thread::yield();
    faults_.Disarm();
  });
  EXPECT_EQ(Take(file->Info()).bytes, bytes_.size());
  EXPECT_EQ(patience_->figures().incidents, 1U);
  EXPECT_EQ(patience_->figures().given_up, 0U);
}

// A back end on which the GFS can be unmounted: then the directory beneath the mount point, which
// is empty and lies on a file system of another type, has the path of the GFS.
class MountedBackend final : public io::IoBackend {
 public:
  explicit MountedBackend(io::IoBackend& gfs) : gfs_(gfs) {}

  std::string_view name() const override { return "mounted"; }
  Result<std::unique_ptr<io::Directory>> OpenDirectory(std::string_view path) override {
    if (is_mounted) return gfs_.OpenDirectory(path);
    ++openings_unmounted;
    return io::PosixDirectory::Create(beneath_.path());
  }
  Result<std::unique_ptr<io::IoQueue>> CreateQueue(const io::QueueOptions& options) override {
    return gfs_.CreateQueue(options);
  }

  std::atomic<bool> is_mounted = true;
  std::atomic<int> openings_unmounted = 0;

 private:
  io::IoBackend& gfs_;
  const io::testing::TempFolder beneath_;
};

TEST_F(PatientBackendTest, TheEmptyMountPointIsNotTakenForTheGfsWhileThatIsRemounted) {
  MountedBackend mounted(faulty_);
  GfsPatience patience({.retry_for_ms = 60'000, .retry_max_interval_ms = 10});
  PatientBackend backend(mounted, patience, calls_, throttle_);
  const auto root = Take(backend.OpenGfsDirectory("/gfs"));
  const auto file = Take(root->Open("a/data.bin", io::OpenMode::kRead));
  // Unmounts the GFS, and mounts it again once its path was opened meanwhile.
  const auto remount = [&] {
    mounted.openings_unmounted = 0;
    mounted.is_mounted = false;
    faults_.Arm({.kind = FaultKind::kStale, .call = std::nullopt, .is_persistent = true});
    return std::jthread([&](const std::stop_token& stop) {
      while (mounted.openings_unmounted < 2 && !stop.stop_requested()) std::this_thread::yield();
      mounted.is_mounted = true;
      faults_.Disarm();
    });
  };
  {
    const std::jthread mounting = remount();
    EXPECT_EQ(CodeOf(root->Open("a/data.bin", io::OpenMode::kRead)), ErrorCode());
  }
  EXPECT_GE(mounted.openings_unmounted, 2);
  {
    const std::jthread mounting = remount();
    EXPECT_EQ(CodeOf(file->Info()), ErrorCode());
  }
  EXPECT_GE(mounted.openings_unmounted, 2);
  EXPECT_EQ(Take(root->List("a")).size(), 1U);
}

// A back end whose directories cannot be opened while `error` is set.
class ClosedBackend final : public io::IoBackend {
 public:
  explicit ClosedBackend(io::IoBackend& gfs) : gfs_(gfs) {}

  std::string_view name() const override { return "closed"; }
  Result<std::unique_ptr<io::Directory>> OpenDirectory(std::string_view path) override {
    ++openings;
    // Read once: the test sets it from another thread.
    const int failure = error;
    if (failure != 0) return Error::FromErrno(failure, "open root '" + std::string(path) + "'");
    return gfs_.OpenDirectory(path);
  }
  Result<std::unique_ptr<io::IoQueue>> CreateQueue(const io::QueueOptions& options) override {
    return gfs_.CreateQueue(options);
  }

  std::atomic<int> error = 0;
  std::atomic<int> openings = 0;

 private:
  io::IoBackend& gfs_;
};

TEST_F(PatientBackendTest, ARootThatCannotBeOpenedForAWhileIsOpenedByTheCallThatNeedsIt) {
  for (const int transient : {EIO, ESTALE, ENOTCONN}) {
    ClosedBackend closed(faulty_);
    GfsPatience patience({.retry_for_ms = 60'000, .retry_max_interval_ms = 10});
    PatientBackend backend(closed, patience, calls_, throttle_);
    closed.error = transient;
    const auto root = Take(backend.OpenGfsDirectory("/gfs"));
    const std::jthread outage([&] {
      while (closed.openings < 4) std::this_thread::yield();
      closed.error = 0;
    });
    EXPECT_EQ(Take(root->List("a")).size(), 1U) << "errno " << transient;
    EXPECT_EQ(patience.figures().incidents, 1U);
    EXPECT_EQ(patience.figures().given_up, 0U);
    const int openings = closed.openings;
    EXPECT_EQ(Take(root->List("a")).size(), 1U);
    EXPECT_EQ(closed.openings, openings) << "it stays open";
  }
}

TEST_F(PatientBackendTest, ARootThatCannotBeOpenedIsNamed) {
  ClosedBackend closed(faulty_);
  GfsPatience patience({.retry_for_ms = 0});
  PatientBackend backend(closed, patience, calls_, throttle_);
  closed.error = EIO;
  const auto root = Take(backend.OpenGfsDirectory("/gfs"));
  const auto listed = root->List("a");
  EXPECT_EQ(CodeOf(listed), ErrorCode::kUnavailable);
  EXPECT_THAT(listed.error().message(), HasSubstr("open root '/gfs'"));
  closed.error = ENOENT;
  EXPECT_EQ(CodeOf(backend.OpenGfsDirectory("/gfs")), ErrorCode::kNotFound)
      << "a wrong path is an error at once";
}

TEST_F(PatientBackendTest, AGfsThatIsNotMountedAgainIsSaidToBeMissing) {
  MountedBackend mounted(faulty_);
  GfsPatience patience({.retry_for_ms = 50, .retry_max_interval_ms = 10});
  PatientBackend backend(mounted, patience, calls_, throttle_);
  const auto root = Take(backend.OpenGfsDirectory("/gfs"));
  mounted.is_mounted = false;
  faults_.Arm({.kind = FaultKind::kStale, .call = std::nullopt, .is_persistent = true});
  const Result<io::FileInfo> info = root->Stat("a/data.bin");
  ASSERT_EQ(CodeOf(info), ErrorCode::kUnavailable);
  EXPECT_THAT(info.error().message(), HasSubstr("'/gfs' is on a file system of another type"));
}

TEST(GfsPatienceTest, PausesDoubleUpToTheirLimitAndHalfOfEachIsRandom) {
  constexpr std::int64_t kLimitMs = 300;
  GfsPatience patience({.retry_for_ms = 3'600'000, .retry_max_interval_ms = kLimitMs});
  const Error failed = Error::FromErrno(EIO, "read of 'x'");
  GfsPatience::Attempt attempt;
  std::set<std::int64_t> at_the_limit;
  for (std::int64_t whole = 20, tries = 0; tries < 40; whole *= 2, ++tries) {
    whole = std::min(whole, kLimitMs);
    const std::optional<std::int64_t> pause = patience.DelayMs(attempt, failed);
    ASSERT_TRUE(pause.has_value());
    EXPECT_GE(*pause, whole / 2) << "try " << tries;
    EXPECT_LE(*pause, whole) << "try " << tries;
    if (whole == kLimitMs) at_the_limit.insert(*pause);
  }
  EXPECT_GT(at_the_limit.size(), 5U) << "nodes of a job would ask all at once";
  patience.Succeeded(attempt);
}

TEST_F(PatientBackendTest, FilesOfTheNodeItselfAreNotRepeated) {
  Open({.retry_for_ms = 60'000});
  const auto local = Take(backend_->OpenDirectory("/gfs"));
  const auto file = Take(local->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_->CreateQueue({.depth = 4}));
  std::vector<std::byte> read(1'000);
  faults_.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead, .is_persistent = true});
  EXPECT_EQ(CodeOf(io::ReadFully(*queue, *file, 0, read)), ErrorCode::kDataLoss);
  EXPECT_EQ(faults_.faults_injected(), 1U);
}

TEST_F(PatientBackendTest, StopEndsEveryWait) {
  Open({.retry_for_ms = 3'600'000, .retry_max_interval_ms = 3'600'000});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_->CreateQueue({.depth = 4}));
  faults_.Arm({.kind = FaultKind::kEio, .call = std::nullopt, .is_persistent = true});
  std::jthread stopper([this] {
    while (patience_->figures().failing == 0) std::this_thread::yield();
    patience_->Stop();
  });
  std::vector<std::byte> read(1'000);
  EXPECT_EQ(CodeOf(io::ReadFully(*queue, *file, 0, read)), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeOf(root_->Stat("a/data.bin")), ErrorCode::kUnavailable);
}

TEST_F(PatientBackendTest, AReadThatIsNotAnsweredIsNamedUntilItIs) {
  Open({});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  const auto queue = Take(backend_->CreateQueue({.depth = 4}));
  faults_.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  std::vector<std::byte> read(10'000);
  io::Operation operation;
  operation.file = file.get();
  operation.buffer = read;
  ASSERT_TRUE(queue->Submit({&operation, 1}).has_value());
  EXPECT_EQ(faults_.faults_injected(), 1U);
  calls_.Look();
  EXPECT_EQ(calls_.figures().hung, 0U) << "it may only be slow";
  clock_.AdvanceNs(kHungAfterMs * 1'000'000);
  calls_.Look();
  const GfsCalls::Figures hung = calls_.figures();
  EXPECT_EQ(hung.hung, 1U);
  EXPECT_EQ(hung.oldest, "read of '/gfs/a/data.bin'");
  EXPECT_EQ(hung.oldest_ms, kHungAfterMs);
  EXPECT_TRUE(calls_.IsLate({.root = "/gfs", .path = "a/data.bin"}));
  EXPECT_EQ(calls_.LateThreads(), std::vector{std::this_thread::get_id()});
  faults_.ReleaseStalls();
  std::vector<io::Completion> completions;
  EXPECT_EQ(queue->Wait(1, completions), 1U);
  EXPECT_EQ(calls_.figures().hung, 0U);
  EXPECT_EQ(calls_.figures().hung_total, 1U);
  EXPECT_FALSE(calls_.IsLate({.root = "/gfs", .path = "a/data.bin"}));
}

TEST_F(PatientBackendTest, EveryCallThatIsNotAnsweredIsNamed) {
  Open({});
  const auto file = Take(root_->Open("a/data.bin", io::OpenMode::kRead));
  struct Case {
    IoCall call;
    std::string name;
    std::function<void()> make;
  };
  const std::vector<Case> cases = {
      {IoCall::kOpen, "open of '/gfs/a/data.bin'",
       [&] { (void)root_->Open("a/data.bin", io::OpenMode::kRead).has_value(); }},
      {IoCall::kStat, "stat of '/gfs/a'", [&] { (void)root_->Stat("a").has_value(); }},
      {IoCall::kList, "list of '/gfs'", [&] { (void)root_->List("").has_value(); }},
      {IoCall::kInfo, "stat of '/gfs/a/data.bin'", [&] { (void)file->Info().has_value(); }}};
  for (const Case& one : cases) {
    const std::uint64_t before = faults_.faults_injected();
    faults_.Arm({.kind = FaultKind::kStall, .call = one.call});
    std::jthread caller(one.make);
    while (faults_.faults_injected() == before) std::this_thread::yield();
    clock_.AdvanceNs(kHungAfterMs * 1'000'000);
    calls_.Look();
    EXPECT_EQ(calls_.figures().oldest, one.name);
    EXPECT_THAT(calls_.UnderWay(), HasSubstr(one.name + " for 30.0 s"));
    faults_.ReleaseStalls();
    caller.join();
    EXPECT_EQ(calls_.figures().hung, 0U) << one.name;
    EXPECT_EQ(calls_.UnderWay(), "");
  }
}

TEST_F(PatientBackendTest, ACallThatIsRepeatedForLongIsLateButNotHung) {
  Open({.retry_for_ms = 60'000, .retry_max_interval_ms = 5});
  faults_.Arm({.kind = FaultKind::kEio, .call = IoCall::kStat, .is_persistent = true});
  std::jthread caller([&] { EXPECT_TRUE(root_->Stat("a").has_value()); });
  while (faults_.candidates_seen() < 3) std::this_thread::yield();
  clock_.AdvanceNs(kHungAfterMs * 1'000'000);
  const std::uint64_t seen = faults_.candidates_seen();
  while (faults_.candidates_seen() < seen + 2) std::this_thread::yield();
  calls_.Look();
  EXPECT_TRUE(calls_.IsLate({.root = "/gfs", .path = "a"}));
  EXPECT_EQ(calls_.figures().hung, 0U) << "the GFS does answer";
  faults_.Disarm();
}

}  // namespace forebay::stage::patient_backend_test
