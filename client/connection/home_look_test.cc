#include "client/connection/home_look.h"

#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"

namespace forebay::internal {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::Soon;

// A daemon that hangs: nothing but the interrupt ends the wait for it.
HomeLook::Found AwaitInterrupt(Interrupt& interrupt) {
  pollfd polled{.fd = interrupt.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&polled, 1, -1), 1);
  return Interrupt::Raised();
}

// Polls until a look has ended, and returns what it has found.
HomeLook::Found Await(HomeLook& look) {
  std::optional<HomeLook::Found> found;
  EXPECT_TRUE(Soon([&] {
    found = look.Poll();
    return found.has_value();
  }));
  return found.value_or(Error(ErrorCode::kInternal, "no look has ended"));
}

TEST(HomeLookTest, APollSaysOnceWhatALookHasFound) {
  std::atomic<int> looks = 0;
  HomeLook look(milliseconds(0), [&looks](Interrupt&) -> HomeLook::Found {
    if (++looks == 1) return Error(ErrorCode::kUnavailable, "nobody is there");
    return std::shared_ptr<const DaemonConnection>();
  });
  EXPECT_FALSE(look.Poll().has_value()) << "it has only begun the look";
  EXPECT_THAT(Await(look).error().message(), HasSubstr("nobody is there"));
  EXPECT_TRUE(Await(look).has_value());
  EXPECT_EQ(looks, 2);
}

TEST(HomeLookTest, OneLookIsUnderWayAtATimeAndPollsDoNotWaitForIt) {
  std::atomic<int> looks = 0;
  HomeLook look(milliseconds(0), [&looks](Interrupt& interrupt) {
    ++looks;
    return AwaitInterrupt(interrupt);
  });
  ASSERT_TRUE(Soon([&] {
    EXPECT_FALSE(look.Poll().has_value());
    return looks > 0;
  }));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look.Poll().has_value());
  EXPECT_EQ(looks, 1);
}  // which ends the look, and waits for its thread

TEST(HomeLookTest, CancelEndsALookAndNoFurtherOneBegins) {
  std::atomic<int> looks = 0;
  HomeLook look(milliseconds(0), [&looks](Interrupt& interrupt) {
    ++looks;
    return AwaitInterrupt(interrupt);
  });
  EXPECT_FALSE(look.Poll().has_value());
  look.Cancel();
  EXPECT_EQ(Await(look).error().code(), ErrorCode::kCancelled);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look.Poll().has_value());
  EXPECT_EQ(looks, 1);
}

TEST(HomeLookTest, TheFirstLookBeginsAPeriodFromTheStart) {
  HomeLook look(hours(1), [](Interrupt&) -> HomeLook::Found {
    ADD_FAILURE() << "the period is not over";
    return Interrupt::Raised();
  });
  EXPECT_FALSE(look.Poll().has_value());
}

TEST(HomeLookTest, AnExceptionIsAnErrorOfTheLook) {
  HomeLook look(milliseconds(0), [](Interrupt&) -> HomeLook::Found {
    throw std::runtime_error("no thread for the connection");
  });
  const HomeLook::Found found = Await(look);
  EXPECT_EQ(found.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(found.error().message(), HasSubstr("no thread for the connection"));
}

}  // namespace
}  // namespace forebay::internal
