// A process that may have no more threads catalogues all the same, with those that it has.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/catalog/stat_many.h"
#include "server/io/testing/memory_backend.h"

namespace {

std::atomic<int> threads_left = 1 << 30;

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (--threads_left < 0) return EAGAIN;
  return real(thread, attributes, start, argument);
}

namespace forebay::catalog {
namespace {

TEST(StatManyThreads, AllPathsAreAskedForWithTheThreadsThatThereAre) {
  constexpr std::size_t kPaths = 400;
  io::MemoryBackend backend;
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < kPaths; ++i) {
    paths.push_back("f" + std::to_string(i));
    ASSERT_TRUE(backend.AddFile("/d/" + paths.back(), std::vector<std::byte>(i)).has_value());
  }
  const auto root = backend.OpenDirectory("/d");
  ASSERT_TRUE(root.has_value());
  for (const int threads : {0, 2}) {
    threads_left = threads;
    const auto infos = StatMany(**root, paths);
    EXPECT_LT(threads_left, 0) << "a thread was refused";
    ASSERT_EQ(infos.size(), kPaths);
    for (std::size_t i = 0; i < kPaths; ++i) {
      ASSERT_TRUE(infos[i].has_value()) << infos[i].error().ToString();
      EXPECT_EQ(infos[i]->bytes, i);
    }
  }
}

}  // namespace
}  // namespace forebay::catalog
