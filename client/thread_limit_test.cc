// A process that may have no more threads: a transform has fewer workers, the stream does not open,
// or a look for the daemon is left out; nothing waits for ever.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/connection/home_look.h"
#include "client/testing/client_test_fixture.h"
#include "client/transform_pool.h"

namespace {

// Which of the next threads that this thread starts is refused; 0: none.
thread_local int refused_thread = 0;

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (refused_thread > 0 && --refused_thread == 0) return EAGAIN;
  return real(thread, attributes, start, argument);
}

namespace forebay {
namespace {

using testing::Connect;
using testing::FakeDaemon;
using testing::FakeStream;

TEST(ThreadLimit, ATransformMakesDoWithTheWorkersThatThereAre) {
  refused_thread = 3;
  const auto pool = std::make_unique<internal::TransformPool>(
      internal::TransformPool::Options{.transform = {}, .threads = 4, .done = {}});
  EXPECT_EQ(refused_thread, 0) << "the third worker was refused";
}

TEST(ThreadLimit, AStreamThatGetsNoThreadIsRefused) {
  FakeDaemon daemon;
  const auto client = Connect(daemon);
  ASSERT_NE(client, nullptr);
  // A first stream: from here on gRPC has the threads that it needs.
  ASSERT_TRUE(client->Open(FakeStream()).has_value());
  StreamOptions options = FakeStream();
  options.transform = [](const TransformInput&) -> Status { return {}; };
  // The one that sends, or the only worker of the transform.
  for (const int refused : {1, 2}) {
    refused_thread = refused;
    const auto stream = client->Open(options);
    EXPECT_EQ(refused_thread, 0);
    ASSERT_FALSE(stream.has_value());
    EXPECT_EQ(stream.error().code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(stream.error().message(), ::testing::HasSubstr("limit on processes"));
  }
  EXPECT_TRUE(client->Open(options).has_value()) << "it may be tried again";
}

TEST(ThreadLimit, ALookForTheDaemonThatGetsNoThreadIsLeftOut) {
  std::atomic<int> looks = 0;
  internal::HomeLook look(std::chrono::milliseconds(0), [&looks](internal::Interrupt&) {
    ++looks;
    return internal::HomeLook::Found(internal::Interrupt::Raised());
  });
  refused_thread = 1;
  EXPECT_FALSE(look.Poll().has_value());
  EXPECT_EQ(refused_thread, 0);
  EXPECT_EQ(looks, 0);
  EXPECT_TRUE(testing::Soon([&] { return look.Poll().has_value(); })) << "the next one";
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace forebay
