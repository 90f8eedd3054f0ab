// The rendezvous by PMIx, as tasks of a real mpirun, each of which runs this program. Started
// without a launcher, the program tests that Connect says so.
#include "server/rendezvous/pmix_rendezvous.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "proto/contract/unique_fd.h"
#include "server/io/clock.h"

// libpmix keeps what it allocates when there is no server.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libpmix";
}

namespace forebay::rendezvous::pmix_rendezvous_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr std::int64_t kNsPerSecond = 1'000'000'000;

NodeEntry Node(std::uint32_t rank) {
  const NodeIdentity identity = {
      .job = "7", .host = "n" + std::to_string(rank), .ssd_directory = "/ssd"};
  return {.identity = identity,
          .place = identity,
          .rank = NodeRank(rank),
          .address = {.host = "10.0.0.1", .port = static_cast<std::uint16_t>(7000 + rank)},
          .capacity_bytes = 1 << 30,
          .nonce = 100 + rank,
          .agreed = {{"protocol version", "1"}, {"configuration", std::string(200, 'x')}}};
}

// The number of tasks that the launcher has started; null: there is no launcher.
const char* LaunchSize() { return std::getenv("OMPI_COMM_WORLD_SIZE"); }

// Without libpmix the text is another one, which names another way, too.
void ExpectNoLauncher(const Result<std::unique_ptr<PmixRendezvous>>& rendezvous) {
  ASSERT_FALSE(rendezvous.has_value());
  EXPECT_THAT(rendezvous.error().message(), AllOf(HasSubstr("PMIx"), HasSubstr("directory:")));
}

TEST(PmixRendezvous, TasksOfALaunchFindEachOther) {
  const io::SteadyClock clock;
  const auto rendezvous = PmixRendezvous::Connect(clock);
  const char* const size = LaunchSize();
  if (size == nullptr) return ExpectNoLauncher(rendezvous);
  ASSERT_TRUE(rendezvous.has_value()) << rendezvous.error().ToString();
  const PmixTask task = (*rendezvous)->task();
  EXPECT_EQ(std::to_string(task.task_count), size);
  EXPECT_EQ(std::to_string(task.rank), std::getenv("OMPI_COMM_WORLD_RANK"));
  EXPECT_EQ(std::to_string(task.tasks_on_this_node), std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE"));

  // Ranks of nodes need not be those of tasks.
  const std::uint32_t rank = task.task_count - 1 - task.rank;
  const std::int64_t deadline_ns = clock.NowNs() + 60 * kNsPerSecond;
  const auto wrong = (*rendezvous)->Exchange(Node(rank), task.task_count + 1, deadline_ns);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), ErrorCode::kFailedPrecondition);

  const auto nodes = (*rendezvous)->Exchange(Node(rank), task.task_count, deadline_ns);
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  ASSERT_EQ(nodes->size(), task.task_count);
  for (std::uint32_t i = 0; i < task.task_count; ++i) EXPECT_EQ((*nodes)[i], Node(i));
}

TEST(PmixRendezvous, ATaskThatNeverComesEndsTheWaitOfTheOthers) {
  const io::SteadyClock clock;
  const auto rendezvous = PmixRendezvous::Connect(clock);
  if (LaunchSize() == nullptr) return ExpectNoLauncher(rendezvous);
  ASSERT_TRUE(rendezvous.has_value()) << rendezvous.error().ToString();
  const PmixTask task = (*rendezvous)->task();
  if (task.rank == 1) return;  // disconnects, and ends
  const auto nodes = (*rendezvous)->Exchange(Node(task.rank), task.task_count,
                                             clock.NowNs() + kNsPerSecond / 2);
  ASSERT_FALSE(nodes.has_value());
  // A launcher may notice that the task has ended.
  EXPECT_THAT(nodes.error().code(),
              AnyOf(Eq(ErrorCode::kDeadlineExceeded), Eq(ErrorCode::kUnavailable)));
}

// Blocks until both tasks of a launch have opened their end of a named pipe. PMIx would do that by
// a fence, which the test cannot use twice.
class Meeting {
 public:
  // The tasks of a launch on one machine have the same parent.
  Meeting()
      : path_(std::filesystem::temp_directory_path() /
              ("forebay_pmix." + std::to_string(getppid()))) {
    mkfifo(path_.c_str(), 0600);  // the other task may have made it
  }
  ~Meeting() { std::filesystem::remove(path_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  void Await(int open_mode) { EXPECT_TRUE(UniqueFd(open(path_.c_str(), open_mode)).valid()); }

 private:
  const std::filesystem::path path_;
};

TEST(PmixRendezvous, AStopEndsTheWaitForATaskThatDoesNotCome) {
  const io::SteadyClock clock;
  Result<std::unique_ptr<PmixRendezvous>> rendezvous = PmixRendezvous::Connect(clock);
  if (LaunchSize() == nullptr) return ExpectNoLauncher(rendezvous);
  ASSERT_TRUE(rendezvous.has_value()) << rendezvous.error().ToString();
  const PmixTask task = (*rendezvous)->task();
  ASSERT_EQ(task.task_count, 2U);
  Meeting meeting;
  // Stays connected, and does not come, until the other task has given the fence up. Otherwise the
  // launcher might end the fence.
  if (task.rank == 1) return meeting.Await(O_RDONLY);

  // A timer stands for the signal. By then the wait has begun; the outcome is the same if it has
  // not.
  const UniqueFd stop(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  const itimerspec soon = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 200'000'000}};
  ASSERT_EQ(timerfd_settime(stop.get(), 0, &soon, nullptr), 0);
  (*rendezvous)->StopAt(stop.get());
  const auto nodes =
      (*rendezvous)->Exchange(Node(0), task.task_count, clock.NowNs() + 30 * kNsPerSecond);
  EXPECT_FALSE(nodes.has_value());
  if (!nodes.has_value()) {
    EXPECT_EQ(nodes.error().code(), ErrorCode::kCancelled) << nodes.error().ToString();
    EXPECT_THAT(nodes.error().message(), HasSubstr("told to stop"));
  }
  // Disconnects while the fence is still under way.
  *rendezvous = nullptr;
  meeting.Await(O_WRONLY);
}

}  // namespace forebay::rendezvous::pmix_rendezvous_test
