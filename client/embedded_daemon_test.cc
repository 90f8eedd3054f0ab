#include "client/embedded_daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/client.h"

namespace forebay::internal {
namespace {

using ::testing::HasSubstr;

class EmbeddedDaemonTest : public ::testing::Test {
 protected:
  EmbeddedDaemonTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "forebay-embedded-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  }
  ~EmbeddedDaemonTest() override {
    for (const pid_t pid : started_) {
      ::kill(pid, SIGTERM);
      ::waitpid(pid, nullptr, 0);
    }
    ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(folder_);
  }

  EmbeddedOptions Options() const {
    return {.job_id = "job-1",
            .config = "any.toml",
            .binary = FAKE_FOREBAYD,
            .directory = {},
            .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20)};
  }

  Result<std::shared_ptr<EmbeddedDaemon>> Start(const EmbeddedOptions& options) {
    auto daemon = EmbeddedDaemon::StartOrJoin(options);
    if (daemon && (*daemon)->started_here()) started_.push_back((*daemon)->pid());
    return daemon;
  }

  std::string folder_;
  std::vector<pid_t> started_;
};

TEST_F(EmbeddedDaemonTest, TheFirstStartsItTheNextOneJoins) {
  auto first = Start(Options());
  ASSERT_TRUE(first.has_value()) << first.error().ToString();
  EXPECT_TRUE((*first)->started_here());
  EXPECT_EQ((*first)->address(), "unix:" + folder_ + "/forebay-job-1/forebayd.sock");
  auto second = Start(Options());
  ASSERT_TRUE(second.has_value()) << second.error().ToString();
  EXPECT_FALSE((*second)->started_here());
  EXPECT_EQ((*second)->address(), (*first)->address());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/forebay-job-1/client.lock"));
}

TEST_F(EmbeddedDaemonTest, OfManyAtOnceOneStartsIt) {
  std::vector<std::jthread> ranks;
  std::vector<std::shared_ptr<EmbeddedDaemon>> daemons(8);
  for (std::size_t i = 0; i < daemons.size(); ++i) {
    ranks.emplace_back([&, i] {
      auto daemon = EmbeddedDaemon::StartOrJoin(Options());
      if (daemon) daemons[i] = *daemon;
    });
  }
  ranks.clear();
  for (const auto& daemon : daemons) {
    ASSERT_NE(daemon, nullptr);
    if (daemon->started_here()) started_.push_back(daemon->pid());
  }
  EXPECT_EQ(started_.size(), 1U);
}

TEST_F(EmbeddedDaemonTest, ADeadDaemonsSocketIsNoObstacle) {
  auto first = Start(Options());
  ASSERT_TRUE(first.has_value());
  ::kill((*first)->pid(), SIGKILL);
  ::waitpid((*first)->pid(), nullptr, 0);
  started_.clear();
  ASSERT_TRUE(std::filesystem::exists(folder_ + "/forebay-job-1/forebayd.sock"));
  auto second = Start(Options());
  ASSERT_TRUE(second.has_value()) << second.error().ToString();
  EXPECT_TRUE((*second)->started_here());
}

TEST_F(EmbeddedDaemonTest, ClientsConnectThroughIt) {
  ::unsetenv("FOREBAY_ADDRESS");
  auto first = Start(Options());
  ASSERT_TRUE(first.has_value());
  auto client = Client::Connect(
      {.job_id = "job-1", .embedded_config = "any.toml", .embedded_daemon = FAKE_FOREBAYD});
  ASSERT_TRUE(client.has_value()) << client.error().ToString();
  EXPECT_EQ((*client)->datasets(), std::vector<std::string>{"fake"});
  EXPECT_EQ((*client)->address(), (*first)->address());
}

TEST_F(EmbeddedDaemonTest, SaysWhatIsMissing) {
  EmbeddedOptions options = Options();
  options.config.clear();
  auto refused = Start(options);
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("FOREBAY_ADDRESS"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/forebay-job-1")) << "nothing stays behind";

  options = Options();
  options.binary = folder_ + "/no-such-forebayd";
  EXPECT_EQ(Start(options).error().code(), ErrorCode::kNotFound);

  options = Options();
  options.config = "fail";
  EXPECT_EQ(Start(options).error().code(), ErrorCode::kUnavailable);
}

TEST_F(EmbeddedDaemonTest, RefusesADirectoryThatOthersMayEnter) {
  const std::string directory = folder_ + "/forebay-job-1";
  std::filesystem::create_directory(directory);
  ::chmod(directory.c_str(), 0755);
  EXPECT_EQ(Start(Options()).error().code(), ErrorCode::kPermissionDenied);
  std::filesystem::remove(directory);
  std::filesystem::create_directory_symlink("/tmp", directory);
  EXPECT_FALSE(Start(Options()).has_value()) << "a link is not followed";
}

TEST_F(EmbeddedDaemonTest, RefusesJobIdsThatAreNoNames) {
  for (const std::string& id :
       std::vector<std::string>{"../up", "a/b", ".hidden", "a b", std::string(65, 'x')}) {
    EmbeddedOptions options = Options();
    options.job_id = id;
    EXPECT_EQ(Start(options).error().code(), ErrorCode::kInvalidArgument) << id;
  }
}

TEST_F(EmbeddedDaemonTest, AHeldLockEndsAtTheDeadline) {
  const std::string directory = folder_ + "/forebay-job-1";
  std::filesystem::create_directory(directory);
  ::chmod(directory.c_str(), 0700);
  std::ofstream(directory + "/client.lock").put('x');
  const int held = ::open((directory + "/client.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EmbeddedOptions options = Options();
  options.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
  EXPECT_EQ(Start(options).error().code(), ErrorCode::kDeadlineExceeded);
  ::close(held);
  EXPECT_TRUE(Start(Options()).has_value());
}

}  // namespace
}  // namespace forebay::internal
