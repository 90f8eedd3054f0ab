// The loop ends at once when a signal arrives or the daemon asks for its end. The interval is
// infinite here, so that only a wake-up can end the loop.
#include "server/daemon/serve_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace forebay::daemon::serve_loop_test {

constexpr std::chrono::seconds kPatience(60);  // until a test gives up

bool IsReadable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

class ServeLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "fbsXXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ASSERT_EQ(pipe2(signals_, O_NONBLOCK | O_CLOEXEC), 0);
    Config config = DefaultConfig();
    config.socket = folder_ + "/run/forebayd.sock";
    config.job_id = "serve-loop-test";
    config.ram_capacity = "1MiB";
    config.slots_capacity = "1MiB";
    auto started = Daemon::Start(config);
    ASSERT_TRUE(started.has_value()) << started.error().ToString();
    daemon_ = std::move(*started);
  }
  void TearDown() override {
    daemon_.reset();
    close(signals_[0]);
    close(signals_[1]);
    std::filesystem::remove_all(folder_);
  }

  std::future<int> Serve() {
    return std::async(std::launch::async, [this] {
      return ServeUntilAsked(*daemon_, {.signal_fd = signals_[0], .tick_ms = -1});
    });
  }
  void SendSignal(int number) {
    signalfd_siginfo info{};
    info.ssi_signo = static_cast<std::uint32_t>(number);
    ASSERT_EQ(write(signals_[1], &info, sizeof(info)), static_cast<ssize_t>(sizeof(info)));
  }
  // Returns what the loop returned. If nothing ends the loop, the test fails, and a signal ends it.
  int Await(std::future<int>& serving) {
    if (serving.wait_for(kPatience) != std::future_status::ready) {
      ADD_FAILURE() << "nothing woke the loop";
      SendSignal(SIGKILL);
    }
    return serving.get();
  }

  std::string folder_;
  int signals_[2] = {-1, -1};
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(ServeLoopTest, ADrainEndsItWithoutHousekeeping) {
  EXPECT_FALSE(IsReadable(daemon_->wake_fd()));
  EXPECT_FALSE(daemon_->Tick()) << "nobody has asked for the end";
  std::future<int> serving = Serve();
  daemon_->RequestDrain(/*after_all=*/false);
  EXPECT_EQ(Await(serving), 0);
  EXPECT_FALSE(IsReadable(daemon_->wake_fd())) << "Tick has taken the wake-up";
  EXPECT_TRUE(daemon_->Tick()) << "and the request stays";
  EXPECT_FALSE(daemon_->stopping()) << "stopping is the caller's";
}

TEST_F(ServeLoopTest, ADrainFromBeforeItIsNotLost) {
  daemon_->RequestDrain(/*after_all=*/false);
  std::future<int> serving = Serve();
  EXPECT_EQ(Await(serving), 0);
}

TEST_F(ServeLoopTest, ASignalEndsItAndIsNamed) {
  std::future<int> serving = Serve();
  SendSignal(SIGTERM);
  EXPECT_EQ(Await(serving), SIGTERM);
  EXPECT_FALSE(daemon_->Tick()) << "nobody asked the daemon";
}

TEST_F(ServeLoopTest, WithBothTheSignalIsToldFirst) {
  daemon_->RequestDrain(/*after_all=*/false);
  SendSignal(SIGINT);
  std::future<int> serving = Serve();
  EXPECT_EQ(Await(serving), SIGINT);
}

TEST_F(ServeLoopTest, WhereItCannotWaitItEndsAndTheDaemonHasFailed) {
  EXPECT_FALSE(daemon_->has_failed());
  // poll refuses more descriptors than a process may have open.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit one{.rlim_cur = 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  std::future<int> serving = Serve();
  EXPECT_EQ(Await(serving), 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(daemon_->has_failed());
  EXPECT_TRUE(daemon_->Stop());
}

}  // namespace forebay::daemon::serve_loop_test
