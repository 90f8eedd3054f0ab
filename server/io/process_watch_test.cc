#include "server/io/process_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include <gtest/gtest.h>

namespace forebay::io {
namespace {

TEST(ProcessWatchTest, AProcessThatLivesHasNotEnded) {
  const std::unique_ptr<ProcessWatch> self = ProcessWatch::Of(::getpid());
  ASSERT_NE(self, nullptr);
  EXPECT_FALSE(self->HasEnded());
}

TEST(ProcessWatchTest, AnEndIsSeenBeforeAndAfterTheParentHasWaited) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const std::unique_ptr<ProcessWatch> watch = ProcessWatch::Of(child);
  ASSERT_NE(watch, nullptr);
  EXPECT_FALSE(watch->HasEnded());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(watch->HasEnded()) << "nobody has waited for it yet";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(watch->HasEnded());
  EXPECT_EQ(ProcessWatch::Of(child), nullptr) << "there is no such process any more";
}

TEST(ProcessWatchTest, AProcessOfAnotherNamespaceCannotBeWatched) {
  EXPECT_EQ(ProcessWatch::Of(0), nullptr);
}

}  // namespace
}  // namespace forebay::io
