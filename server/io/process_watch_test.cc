#include "server/io/process_watch.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::io {
namespace {

TEST(ProcessWatchTest, AProcessThatLivesHasNotEnded) {
  const auto self = ProcessWatch::Of(::getpid());
  ASSERT_TRUE(self.has_value()) << self.error().ToString();
  EXPECT_FALSE((*self)->HasEnded());
}

TEST(ProcessWatchTest, AnEndIsSeenBeforeAndAfterTheParentHasWaited) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto watch = ProcessWatch::Of(child);
  ASSERT_TRUE(watch.has_value()) << watch.error().ToString();
  EXPECT_FALSE((*watch)->HasEnded());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE((*watch)->HasEnded()) << "nobody has waited for it yet";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE((*watch)->HasEnded());
  const auto gone = ProcessWatch::Of(child);
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(gone.error().message(), ::testing::HasSubstr(std::to_string(child)));
}

TEST(ProcessWatchTest, WithoutADescriptorTheReasonIsNamed) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto watch = ProcessWatch::Of(::getpid());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(watch.has_value());
  EXPECT_EQ(watch.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(watch.error().message(), ::testing::HasSubstr("open files"));
}

TEST(ProcessWatchTest, AProcessOfAnotherNamespaceCannotBeWatched) {
  EXPECT_EQ(ProcessWatch::Of(0).error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace forebay::io
