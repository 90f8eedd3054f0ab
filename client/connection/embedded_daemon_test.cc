#include "client/connection/embedded_daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

#include "forebay/client.h"

namespace forebay::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CurrentJobTest, IsTheSchedulersUnlessTheUserChoosesOne) {
  for (const char* name : {"FOREBAY_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID", "JOB_ID",
                           "SGE_TASK_ID"}) {
    ::unsetenv(name);
  }
  EXPECT_EQ(CurrentJob(), "local");
  ::setenv("JOB_ID", "77", 1);
  ::setenv("SGE_TASK_ID", "3", 1);
  EXPECT_EQ(CurrentJob(), "77.3");
  ::setenv("FOREBAY_JOB_ID", "night-run", 1);
  EXPECT_EQ(CurrentJob(), "night-run");
  for (const char* name : {"FOREBAY_JOB_ID", "JOB_ID", "SGE_TASK_ID"}) ::unsetenv(name);
}

class EmbeddedDaemonTest : public ::testing::Test {
 protected:
  EmbeddedDaemonTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "forebay-embedded-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    std::ofstream(folder_ + "/any.toml") << "# any";
    std::ofstream(folder_ + "/other.toml") << "# other";
    std::ofstream(folder_ + "/fail") << "# fails";
    directory_ = EmbeddedDirectory("job-1", "# any");
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
            .config = folder_ + "/any.toml",
            .config_text = {},
            .binary = FAKE_FOREBAYD,
            .directory = {},
            .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20)};
  }

  Result<std::shared_ptr<EmbeddedDaemon>> Start(const EmbeddedOptions& options) {
    auto daemon = EmbeddedDaemon::StartOrJoin(options);
    if (daemon && (*daemon)->started_here()) started_.push_back((*daemon)->pid());
    return daemon;
  }

  // The daemons that this process has started and nobody has collected.
  static std::vector<pid_t> Children() {
    std::ifstream list("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    std::vector<pid_t> children;
    for (pid_t pid = 0; list >> pid;) children.push_back(pid);
    return children;
  }

  std::string folder_;
  std::string directory_;  // of the daemon of any.toml
  std::vector<pid_t> started_;
};

TEST_F(EmbeddedDaemonTest, TheFirstStartsItTheNextOneJoins) {
  auto first = Start(Options());
  ASSERT_TRUE(first.has_value()) << first.error().ToString();
  EXPECT_TRUE((*first)->started_here());
  EXPECT_EQ((*first)->address(), "unix:" + directory_ + "/forebayd.sock");
  auto second = Start(Options());
  ASSERT_TRUE(second.has_value()) << second.error().ToString();
  EXPECT_FALSE((*second)->started_here());
  EXPECT_EQ((*second)->address(), (*first)->address());
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/client.lock"));
}

TEST_F(EmbeddedDaemonTest, ProgramsOfOtherConfigurationsGetTheirOwn) {
  auto first = Start(Options());
  ASSERT_TRUE(first.has_value()) << first.error().ToString();
  EmbeddedOptions options = Options();
  options.config.clear();
  auto joined = Start(options);
  ASSERT_TRUE(joined.has_value()) << joined.error().ToString();
  EXPECT_EQ((*joined)->address(), (*first)->address()) << "there is one to join";
  options.config = folder_ + "/other.toml";
  auto other = Start(options);
  ASSERT_TRUE(other.has_value()) << other.error().ToString();
  EXPECT_TRUE((*other)->started_here());
  EXPECT_NE((*other)->address(), (*first)->address());
  options.config.clear();
  const auto refused = Start(options);
  ASSERT_FALSE(refused.has_value()) << "which one is not said";
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr((*first)->address()));
  EXPECT_THAT(refused.error().message(), HasSubstr((*other)->address()));
}

TEST_F(EmbeddedDaemonTest, OnlyItsOwnSocketsAreAJobs) {
  for (const char* name : {"forebay-job-1", "forebay-job-1-0123abcd", "forebay-job-1-0123abcg",
                           "forebay-job-1-0123abcde", "forebay-job-10", "forebay-job-1-1"}) {
    const std::string directory = folder_ + "/" + name;
    std::filesystem::create_directory(directory);
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    (directory + "/forebayd.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  EXPECT_THAT(AddressesOfJob("job-1"),
              ElementsAre("unix:" + folder_ + "/forebay-job-1-0123abcd/forebayd.sock",
                          "unix:" + folder_ + "/forebay-job-1/forebayd.sock"));
  EXPECT_THAT(AddressesOfJob("job-2"), IsEmpty());
}

TEST_F(EmbeddedDaemonTest, ASocketWhosePathIsTooLongDoesNotAnswer) {
  // Much longer than the 107 bytes for which a socket's address has room.
  std::string runtime = folder_;
  for (int i = 0; i < 15; ++i) runtime += "/" + std::string(200, 'x');
  const std::string directory = runtime + "/forebay-job-1";
  std::filesystem::create_directories(directory);
  // A link of few characters gives the socket its long path.
  const std::string link = folder_ + "/link";
  std::filesystem::create_directory_symlink(directory, link);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  (link + "/forebayd.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  ASSERT_THAT(AddressesOfJob("job-1"), ElementsAre("unix:" + directory + "/forebayd.sock"));
  EXPECT_THAT(DaemonsOfJob("job-1", Options().deadline), IsEmpty());
}

TEST_F(EmbeddedDaemonTest, AKilledDaemonIsStartedAgainByOneOfItsClients) {
  ::unsetenv("FOREBAY_ADDRESS");
  const ClientOptions options = {.job_id = "job-1",
                                 .embedded_config = folder_ + "/any.toml",
                                 .embedded_daemon = FAKE_FOREBAYD};
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    auto client = Client::Connect(options);
    ASSERT_TRUE(client.has_value()) << client.error().ToString();
    clients.push_back(std::move(*client));
  }
  // By its socket's owner: this process started it, but the client library has its pid.
  const std::vector<pid_t> before = Children();
  ASSERT_EQ(before.size(), 1U);
  ::kill(before.front(), SIGKILL);
  ::waitpid(before.front(), nullptr, 0);
  std::filesystem::remove(folder_ + "/any.toml");
  std::ofstream(folder_ + "/any.toml") << "# any";
  for (const auto& client : clients) {
    EXPECT_TRUE(client->Describe("fake", "all").has_value()) << "its next call finds a new one";
  }
  started_ = Children();
  EXPECT_EQ(started_.size(), 1U);
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
  ASSERT_TRUE(std::filesystem::exists(directory_ + "/forebayd.sock"));
  auto second = Start(Options());
  ASSERT_TRUE(second.has_value()) << second.error().ToString();
  EXPECT_TRUE((*second)->started_here());
}

TEST_F(EmbeddedDaemonTest, ClientsConnectThroughIt) {
  ::unsetenv("FOREBAY_ADDRESS");
  auto first = Start(Options());
  ASSERT_TRUE(first.has_value());
  auto client = Client::Connect({.job_id = "job-1",
                                 .embedded_config = folder_ + "/any.toml",
                                 .embedded_daemon = FAKE_FOREBAYD});
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
  EXPECT_FALSE(std::filesystem::exists(directory_)) << "nothing stays behind";

  options.config = folder_ + "/absent.toml";
  EXPECT_EQ(Start(options).error().code(), ErrorCode::kNotFound);

  options = Options();
  options.binary = folder_ + "/no-such-forebayd";
  EXPECT_EQ(Start(options).error().code(), ErrorCode::kNotFound);

  options = Options();
  options.config = folder_ + "/fail";
  EXPECT_EQ(Start(options).error().code(), ErrorCode::kUnavailable);
}

TEST_F(EmbeddedDaemonTest, RefusesADirectoryThatOthersMayEnter) {
  const std::string& directory = directory_;
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
  const std::string& directory = directory_;
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
