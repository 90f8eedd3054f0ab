// A daemon that does not stop in time ends all the same, with a line of the log that says what it
// waited for, and an exit code. Each case is a process of its own.
#include "server/daemon/end_in_time.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "server/daemon/config/daemon_arguments.h"
#include "server/io/testing/manual_clock.h"

namespace forebay::daemon {
namespace {

using ::testing::ExitedWithCode;

constexpr int kCode = 7;  // none of the daemon's own

void WaitForEver() { std::promise<void>().get_future().wait(); }

// A log whose file system does not answer.
class HungSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg&) override { WaitForEver(); }
  void flush_() override {}
};

class EndInTimeTest : public ::testing::Test {
 protected:
  // The processes of the cases have threads.
  EndInTimeTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // To be called in the process of a case.
  static EndInTimeParts Parts(std::chrono::milliseconds patience) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
    static io::ManualClock clock;
    const auto steps = std::make_shared<StopSteps>(clock);
    steps->Begin("the scrubber");
    return {.patience = patience,
            .steps = steps,
            .gfs_calls = [] { return std::string(); },
            .paths = {}};
  }
  // Stop does not return.
  static void HangInStop(EndInTimeParts parts) {
    const EndInTime watch(std::move(parts));
    WaitForEver();
  }
};

using EndInTimeDeathTest = EndInTimeTest;

constexpr std::chrono::milliseconds kShort(1);

TEST_F(EndInTimeDeathTest, WhatStopWaitsForIsNamedAndTheCodeIsThatOfAFailure) {
  EXPECT_EXIT(HangInStop(Parts(kShort)), ExitedWithCode(kExitFailure.code),
              "could not stop within 1 ms, and exits without waiting for the scrubber");
}

TEST_F(EndInTimeDeathTest, AGfsThatDoesNotAnswerIsNamedAndIsNoFailureOfTheDaemon) {
  const auto hang = [] {
    EndInTimeParts parts = Parts(kShort);
    parts.gfs_calls = [] { return std::string("read of 'x.bin'"); };
    HangInStop(std::move(parts));
  };
  EXPECT_EXIT(hang(), ExitedWithCode(kExitOk.code),
              "without waiting for an answer of the GFS: read of 'x.bin'");
}

TEST_F(EndInTimeDeathTest, FilesThatStopHasNotRemovedAreRemoved) {
  // The case runs this function once more, in its own process, and needs the same folder there.
  // Tests of another build tree, or of another user, must not use it at the same time.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      fmt::format("forebay_end_in_time_{}_{:x}", getuid(), std::hash<std::string>()(program));
  std::filesystem::create_directories(folder);
  const std::string file = folder / "socket";
  std::ofstream(file).put('x');
  const auto hang = [&file] {
    EndInTimeParts parts = Parts(kShort);
    parts.paths = {file};
    HangInStop(std::move(parts));
  };
  EXPECT_EXIT(hang(), ExitedWithCode(kExitFailure.code), "without waiting for");
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(EndInTimeDeathTest, DestructorsThatTakeTooLongDoNotChangeTheExitCode) {
  const auto hang = [] {
    EndInTimeParts parts = Parts(std::chrono::seconds(2));
    parts.gfs_calls = [] { return std::string("of a daemon that is being destroyed"); };
    EndInTime watch(std::move(parts));
    watch.HasStopped(kCode);
    WaitForEver();
  };
  EXPECT_EXIT(hang(), ExitedWithCode(kCode), "without waiting for the scrubber");
}

TEST_F(EndInTimeDeathTest, ALogThatTakesNoLineIsNotWaitedFor) {
  const auto hang = [] {
    EndInTimeParts parts = Parts(kShort);
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<HungSink>()));
    HangInStop(std::move(parts));
  };
  EXPECT_EXIT(hang(), ExitedWithCode(kExitFailure.code), "");
}

TEST_F(EndInTimeDeathTest, ADaemonThatStopsInTimeIsLeftAlone) {
  const auto end = [] {
    { const EndInTime watch(Parts(std::chrono::hours(1))); }
    std::_Exit(kCode);
  };
  EXPECT_EXIT(end(), ExitedWithCode(kCode), "");
}

}  // namespace
}  // namespace forebay::daemon
