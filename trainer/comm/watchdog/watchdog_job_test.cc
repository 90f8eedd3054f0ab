// Whole jobs of two ranks under mpirun, one of which is stopped, dies or computes for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/unique_fd.h"

namespace forebay::train {
namespace {

struct Job {
  bool in_time = false;
  bool succeeded = false;
  std::string output;
  std::vector<pid_t> processes = {};
};

// Open MPI as root, with more ranks than cores, and with its files apart from those of jobs that
// run at the same time, which it removes at times; other MPIs ignore these.
void SetLauncherEnvironment(const std::string& folder) {
  ::setenv("OMPI_MCA_orte_tmpdir_base", folder.c_str(), 1);
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
    ::setenv(name, "1", 1);
  }
}

pid_t Launch(const char* how, const std::string& folder) {
  const pid_t launcher = ::fork();
  if (launcher != 0) return launcher;
  SetLauncherEnvironment(folder);
  const int file = ::open((folder + "/output").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  ::execlp(FOREBAY_MPIEXEC, FOREBAY_MPIEXEC, FOREBAY_MPIEXEC_RANKS, "2", FOREBAY_WATCHDOG_RANK, how,
          nullptr);
  ::_exit(127);
}

// What the ranks printed of themselves.
std::vector<pid_t> ProcessesIn(const std::string& output) {
  std::vector<pid_t> processes;
  const std::string marker = "is process ";
  for (std::size_t at = output.find(marker); at != std::string::npos;
       at = output.find(marker, at + 1)) {
    processes.push_back(std::stoi(output.substr(at + marker.size())));
  }
  return processes;
}

bool Lives(pid_t process) { return ::kill(process, 0) == 0; }

Job RunJob(const char* how, std::chrono::seconds limit) {
  std::string folder = ::testing::TempDir() + "/watchdog_job_XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  const pid_t launcher = Launch(how, folder);
  Job job;
  int status = 0;
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, launcher, 0)));
  EXPECT_TRUE(handle.valid());
  pollfd ended = {.fd = handle.get(), .events = POLLIN, .revents = 0};
  job.in_time = ::poll(&ended, 1, static_cast<int>(limit.count() * 1000)) == 1 &&
                ::waitpid(launcher, &status, 0) == launcher;
  std::stringstream text;
  text << std::ifstream(folder + "/output").rdbuf();
  job.output = text.str();
  job.processes = ProcessesIn(job.output);
  job.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!job.in_time) {
    ::kill(launcher, SIGKILL);
    for (const pid_t process : job.processes) ::kill(process, SIGKILL);
    ::waitpid(launcher, &status, 0);
  }
  std::filesystem::remove_all(folder);
  return job;
}

// The launcher's wait for its ranks is over; the kernel may still be at it.
void ExpectNothingLeft(const Job& job) {
  ASSERT_EQ(job.processes.size(), 2U) << job.output;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (const pid_t process : job.processes) {
    while (Lives(process) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(Lives(process)) << process << "\n" << job.output;
  }
}

void ExpectEndsWith(const char* how, const std::string& message) {
  const Job job = RunJob(how, std::chrono::seconds(100));
  EXPECT_TRUE(job.in_time) << job.output;
  EXPECT_FALSE(job.succeeded);
  EXPECT_NE(job.output.find(message), std::string::npos) << job.output;
  EXPECT_NE(job.output.find("step 7, F micro-batch 3 of stage 1"), std::string::npos)
      << job.output;
  ExpectNothingLeft(job);
}

TEST(WatchdogJobTest, AJobThatEndsByItselfSaysNothing) {
  const Job job = RunJob("none", std::chrono::seconds(100));
  EXPECT_TRUE(job.in_time && job.succeeded) << job.output;
  EXPECT_EQ(job.output.find("host"), std::string::npos) << job.output;
  ExpectNothingLeft(job);
}

TEST(WatchdogJobTest, AStoppedRankEndsTheJob) {
  ExpectEndsWith("stop", "has not been heard of for ");
}

TEST(WatchdogJobTest, AKilledRankIsNamed) { ExpectEndsWith("kill", "has gone"); }

TEST(WatchdogJobTest, ARankThatExitsIsNamed) { ExpectEndsWith("exit", "has gone"); }

TEST(WatchdogJobTest, ARankThatComputesForEverIsReportedUntilTheTimeoutOfWhoWaits) {
  ExpectEndsWith("spin", "has been at one instruction for");
}

}  // namespace
}  // namespace forebay::train
