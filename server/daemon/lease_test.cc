// One holder at a time: between objects of one process, between processes, after a SIGKILL, and
// when two daemons take turns quickly. A directory that others can change is refused. The linker
// wraps flock, so that tests can remove a lock file after it was opened and before it is locked.
#include "server/daemon/lease.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

std::function<void()> before_flock;  // set by tests that use one thread

}  // namespace

extern "C" {
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation) {
  if (before_flock) before_flock();
  return __real_flock(fd, operation);
}
}

namespace forebay::daemon {
namespace {

using ::testing::HasSubstr;

class LeaseTest : public ::testing::Test {
 protected:
  LeaseTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fblXXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    directory_ = folder_ + "/run";
  }
  ~LeaseTest() override {
    before_flock = nullptr;
    std::filesystem::remove_all(folder_);
  }

  std::string LockFile() const { return directory_ + "/forebayd.lock"; }

  // Starts a child process that takes the lease, reports it, and waits to be killed.
  pid_t StartHolder() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const Result<Lease> lease = Lease::Take(directory_);
      const char answer = lease.has_value() ? 'y' : 'n';
      (void)!write(ends[1], &answer, 1);
      for (;;) pause();
    }
    char answer = 0;
    EXPECT_EQ(read(ends[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y') << "the holder did not get the lease";
    close(ends[0]);
    close(ends[1]);
    return child;
  }

  std::string folder_;
  std::string directory_;
};

ErrorCode CodeOf(const Result<Lease>& lease) {
  return lease.has_value() ? ErrorCode() : lease.error().code();
}

void Kill(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(LeaseTest, MakesAPrivateDirectoryAndNamesItself) {
  const Result<Lease> lease = Lease::Take(directory_);
  ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
  struct stat info {};
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  ASSERT_EQ(stat(LockFile().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0077, 0U);
  std::ifstream file(LockFile());
  int pid = 0;
  file >> pid;
  EXPECT_EQ(pid, getpid());
}

TEST_F(LeaseTest, NothingIsLeftAfterRelease) {
  { ASSERT_TRUE(Lease::Take(directory_).has_value()); }
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

TEST_F(LeaseTest, ADirectoryWithOtherThingsStays) {
  {
    const Result<Lease> lease = Lease::Take(directory_);
    ASSERT_TRUE(lease.has_value());
    std::ofstream(directory_ + "/segment") << "bytes";
  }
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/segment"));
  EXPECT_FALSE(std::filesystem::exists(LockFile()));
}

TEST_F(LeaseTest, IsExclusiveAndNamesTheHolder) {
  const Result<Lease> first = Lease::Take(directory_);
  ASSERT_TRUE(first.has_value());
  const Result<Lease> second = Lease::Take(directory_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr("pid " + std::to_string(getpid())));
  EXPECT_THAT(second.error().message(), HasSubstr(directory_));
  EXPECT_TRUE(std::filesystem::exists(LockFile())) << "a refusal changes nothing";
}

// A job that is started again at once meets the daemon of the last one while that drains.
TEST_F(LeaseTest, AHolderThatIsEndingIsWaitedFor) {
  std::optional<Lease> ending;
  {
    Result<Lease> lease = Lease::Take(directory_);
    ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
    ending.emplace(std::move(*lease));
  }
  ending->MarkEnding();
  const Status busy = Lease::CheckFree(directory_);
  ASSERT_FALSE(busy.has_value()) << "it still holds the lease";
  EXPECT_THAT(busy.error().message(), HasSubstr("pid " + std::to_string(getpid())));
  std::atomic<int> looks = 0;
  before_flock = [&] {
    // At the third look the holder has ended.
    if (++looks == 3) ending.reset();
  };
  const Result<Lease> next = Lease::Take(directory_);
  ASSERT_TRUE(next.has_value()) << next.error().ToString();
  EXPECT_GE(looks, 3);
  EXPECT_TRUE(std::filesystem::exists(LockFile()));
}

TEST_F(LeaseTest, AWaitForAHolderThatIsEndingEndsWhenItIsAskedTo) {
  const Result<Lease> ending = Lease::Take(directory_);
  ASSERT_TRUE(ending.has_value()) << ending.error().ToString();
  ending->MarkEnding();
  const UniqueFd stop(eventfd(1, EFD_CLOEXEC));
  const Result<Lease> next = Lease::Take(directory_, stop.get());
  ASSERT_FALSE(next.has_value());
  EXPECT_EQ(next.error().code(), ErrorCode::kCancelled);
  EXPECT_THAT(next.error().message(), HasSubstr("pid " + std::to_string(getpid())));
}

// A killed process keeps its locks while the kernel frees its memory. A zombie's are free already,
// so here the test holds the lock in the name of one.
TEST_F(LeaseTest, AHolderThatWasKilledIsWaitedForAndOneThatLivesIsNot) {
  const pid_t killed = fork();
  if (killed == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(killed), &info, WEXITED | WNOWAIT), 0);
  Result<Lease> held = Lease::Take(directory_);
  ASSERT_TRUE(held.has_value());
  std::optional<Lease> lease(std::move(*held));
  std::ofstream(LockFile()) << killed << "\n";
  int looks = 0;
  before_flock = [&] {
    if (++looks == 3) lease.reset();
  };
  EXPECT_TRUE(Lease::Take(directory_).has_value());
  EXPECT_GE(looks, 3);
  before_flock = nullptr;
  waitpid(killed, nullptr, 0);

  const pid_t holder = StartHolder();
  looks = 0;
  before_flock = [&] { ++looks; };
  EXPECT_EQ(CodeOf(Lease::Take(directory_)), ErrorCode::kAlreadyExists);
  EXPECT_EQ(looks, 1) << "it serves: nothing is to be waited for";
  before_flock = nullptr;
  Kill(holder);
}

TEST_F(LeaseTest, AnotherProcessesLeaseIsRespectedUntilItIsKilled) {
  const pid_t holder = StartHolder();
  const Result<Lease> refused = Lease::Take(directory_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("pid " + std::to_string(holder)));
  Kill(holder);
  ASSERT_TRUE(std::filesystem::exists(LockFile())) << "the killed holder left its file";
  const Result<Lease> taken = Lease::Take(directory_);
  EXPECT_TRUE(taken.has_value()) << taken.error().ToString();
}

TEST_F(LeaseTest, WhetherItIsFreeIsSaidWithoutTakingIt) {
  EXPECT_TRUE(Lease::CheckFree(directory_).has_value());
  EXPECT_FALSE(std::filesystem::exists(directory_)) << "nothing is created";
  auto lease = std::make_optional(Lease::Take(directory_));
  ASSERT_TRUE((*lease).has_value());
  const Status held = Lease::CheckFree(directory_);
  ASSERT_FALSE(held.has_value());
  EXPECT_EQ(held.error().code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(held.error().message(), HasSubstr(std::to_string(getpid())));
  lease.reset();
  // What a killed daemon leaves.
  std::filesystem::create_directory(directory_);
  std::ofstream(LockFile()) << "4711\n";
  EXPECT_TRUE(Lease::CheckFree(directory_).has_value());
  const auto next = Lease::Take(directory_);
  EXPECT_TRUE(next.has_value()) << "the check holds no lock";
}

TEST_F(LeaseTest, AMovedLeaseIsReleasedOnce) {
  Result<Lease> first = Lease::Take(directory_);
  ASSERT_TRUE(first.has_value());
  {
    const Lease moved = std::move(*first);
    EXPECT_TRUE(std::filesystem::exists(LockFile()));
  }
  const Result<Lease> next = Lease::Take(directory_);
  ASSERT_TRUE(next.has_value());
  first = Error(ErrorCode::kInternal, "destroys the moved-from lease");
  EXPECT_TRUE(std::filesystem::exists(LockFile()));
}

TEST_F(LeaseTest, OfManyTakersOneHoldsItAtATime) {
  constexpr int kTakers = 8;
  constexpr int kRounds = 50;
  std::atomic<int> holders = 0;
  std::atomic<int> taken = 0;
  std::atomic<bool> shared = false;
  {
    std::vector<std::jthread> takers;
    for (int i = 0; i < kTakers; ++i) {
      takers.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) {
          const Result<Lease> lease = Lease::Take(directory_);
          if (!lease.has_value()) continue;
          ++taken;
          if (++holders != 1) shared = true;
          --holders;
        }
      });
    }
  }
  EXPECT_FALSE(shared);
  EXPECT_GT(taken, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

// The last holder removes the file in front of the lock, as its destructor may.
TEST_F(LeaseTest, ALockFileThatWasRemovedBeforeItsLockIsMadeAgain) {
  int attempts = 0;
  before_flock = [&] {
    if (attempts++ == 0) std::filesystem::remove(LockFile());
  };
  const Result<Lease> lease = Lease::Take(directory_);
  ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
  EXPECT_EQ(attempts, 2);
  EXPECT_TRUE(std::filesystem::exists(LockFile()));
  EXPECT_EQ(CodeOf(Lease::Take(directory_)), ErrorCode::kAlreadyExists);
}

TEST_F(LeaseTest, ALockFileThatAnotherDaemonHasReplacedIsNotTaken) {
  std::optional<Result<Lease>> other;
  int attempts = 0;
  before_flock = [&] {
    if (attempts++ != 0) return;  // also for the lock that is taken here
    std::filesystem::remove(LockFile());
    other.emplace(Lease::Take(directory_));
  };
  const Result<Lease> lease = Lease::Take(directory_);
  ASSERT_TRUE(other.has_value() && other->has_value());
  EXPECT_EQ(CodeOf(lease), ErrorCode::kAlreadyExists);
}

TEST_F(LeaseTest, AFileThatIsRemovedBeforeEveryLockEndsInAnError) {
  int removals = 0;
  before_flock = [&] { removals += std::filesystem::remove(LockFile()) ? 1 : 0; };
  EXPECT_EQ(CodeOf(Lease::Take(directory_)), ErrorCode::kUnavailable);
  EXPECT_GT(removals, 1);
}

TEST_F(LeaseTest, ADirectoryThatOthersMayWriteToIsRefused) {
  for (const mode_t mode : {0770U, 0702U, 0777U}) {
    std::filesystem::create_directory(directory_);
    ASSERT_EQ(chmod(directory_.c_str(), mode), 0);
    const Result<Lease> refused = Lease::Take(directory_);
    ASSERT_FALSE(refused.has_value()) << std::oct << mode;
    EXPECT_EQ(refused.error().code(), ErrorCode::kPermissionDenied);
    EXPECT_THAT(refused.error().message(), HasSubstr(directory_));
    EXPECT_FALSE(std::filesystem::exists(LockFile()));
    std::filesystem::remove(directory_);
  }
}

TEST_F(LeaseTest, AnotherUsersDirectoryIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  std::filesystem::create_directory(directory_);
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
  ASSERT_EQ(chown(directory_.c_str(), 65534, 65534), 0);
  const Result<Lease> refused = Lease::Take(directory_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kPermissionDenied);
}

TEST_F(LeaseTest, LinksAndFilesAreNoDirectories) {
  std::filesystem::create_directory(folder_ + "/elsewhere");
  std::filesystem::create_directory_symlink(folder_ + "/elsewhere", directory_);
  EXPECT_EQ(Lease::Take(directory_).error().code(), ErrorCode::kPermissionDenied);
  std::filesystem::remove(directory_);
  std::ofstream(directory_) << "a file";
  EXPECT_EQ(Lease::Take(directory_).error().code(), ErrorCode::kPermissionDenied);
  EXPECT_FALSE(Lease::Take(directory_ + "/below").has_value());
}

TEST_F(LeaseTest, ALinkInPlaceOfTheLockFileIsNotFollowed) {
  std::filesystem::create_directory(directory_);
  std::filesystem::permissions(directory_, std::filesystem::perms::owner_all);
  std::ofstream(folder_ + "/precious") << "data";
  std::filesystem::create_symlink(folder_ + "/precious", LockFile());
  EXPECT_FALSE(Lease::Take(directory_).has_value());
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/precious"), 4U);
}

TEST(RuntimeDirectoryTest, IsOfThisUserAndJob) {
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultRuntimeDirectory("12"), "/run/user/7/forebay-12");
  unsetenv("XDG_RUNTIME_DIR");
  setenv("TMPDIR", "/var/tmp", 1);
  EXPECT_EQ(DefaultRuntimeDirectory("12"),
            "/var/tmp/forebay-" + std::to_string(geteuid()) + "-12");
  setenv("TMPDIR", "/no/such/directory", 1);
  EXPECT_EQ(DefaultRuntimeDirectory("12"),
            "/tmp/forebay-" + std::to_string(geteuid()) + "-12");
  unsetenv("TMPDIR");
}

}  // namespace
}  // namespace forebay::daemon
